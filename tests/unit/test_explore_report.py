"""The page of an exploration: it says the numbers of the tables, on what they stand, and where a bound changes."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.reports.explore import explore_page, explore_report, page_figures, page_html
from codesign.reports.explore_figures import parts_infos, sensitivity_rows
from codesign.reports.explore_front import front_info, lines_info
from codesign.reports.explore_info import choice_of, markdown_of
from codesign.reports.explore_measures import change_text, measures_of
from codesign.sim.designs import Designs, design_costs
from codesign.sim.designs.costs import BOUNDS, OF_MIXTURE, PARTS
from codesign.workbench.explore import explore
from codesign.workbench.explore_costs import prices_of
from codesign.workbench.explore_sensitivity import (
    base_values,
    batch_curve,
    crossovers,
    link_twice,
    most_that_fit,
)
from small_explorations import POINTS, explored

PROFILED, FLOOR = "h200-sxm-sglang", "b200"
ONE_DEVICE = '[[points]]\nname = "alone"\nbatch = 4\ncontext = 1024\n'
SMALL_MACHINE = '[[machines]]\nhardware = "b200"\n'


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return explored(tmp_path_factory.mktemp("explored"))


@pytest.fixture(scope="module")
def page(result):
    return explore_page(result)


def choice(result, machine):
    return choice_of(result, machine, measures_of(result, machine), prices_of(machine_of(result, machine)))


def machine_of(result, name):
    return next(machine for machine in result.study.machines if machine.name == name)


def bound_at(result, machine, row, point, batch, of=PARTS):
    designs = Designs.of([result.spec(row)])
    placed = dataclasses.replace(next(one for one in result.points if one.name == point), batch=batch)
    return str(design_costs(designs, placed, prices_of(machine_of(result, machine)).prices).bound_by(of)[0])


@pytest.mark.parametrize("machine", [PROFILED, FLOOR])
def test_the_curve_passes_through_the_studys_own_points(result, machine):
    row = result.fronts[machine].knee
    for point in ("interactive", "bulk"):
        placed = next(one for one in result.study.points if one.name == point)
        found = {one.batch: one for one in batch_curve(result, machine, row, point)}[placed.batch]
        costs = result.costs[machine].iloc[row]
        assert found.seconds == pytest.approx(costs[f"latency:{point}"])
        assert (found.low, found.high) == pytest.approx((costs[f"latency_low:{point}"], costs[f"latency_high:{point}"]))
        assert (found.bound, found.mixture_bound) == (costs[f"bound:{point}"], costs[f"mixture_bound:{point}"])
        assert found.measured == pytest.approx(costs[f"measured:{point}"])


def test_batches_are_powers_of_two_that_can_be_dealt_out_over_the_replicas(result):
    row = result.fronts[FLOOR].knee
    assert [one.batch for one in batch_curve(result, FLOOR, row, "bulk")] == [2**power for power in range(3, 13)]
    asked = batch_curve(result, FLOOR, row, "bulk", [1, 8, 12, 24])
    assert [one.batch for one in asked] == [8, 24]


@pytest.mark.parametrize("of", [PARTS, OF_MIXTURE])
def test_a_crossover_is_the_first_batch_at_which_the_new_bound_reigns(result, of):
    found = 0
    for row in result.fronts[FLOOR].chosen:
        for one in crossovers(result, FLOOR, row, "bulk", of=of):
            assert bound_at(result, FLOOR, row, "bulk", one.batch, of) == one.after
            assert bound_at(result, FLOOR, row, "bulk", one.batch - 8, of) == one.before != one.after
            found += 1
    assert found


def test_crossovers_lead_from_the_first_bound_to_the_last(result):
    for row in result.fronts[FLOOR].chosen:
        rows, changes = batch_curve(result, FLOOR, row, "bulk"), crossovers(result, FLOOR, row, "bulk")
        chain = [rows[0].bound, *(one.after for one in changes)]
        assert [one.before for one in changes] == chain[:-1]
        assert chain[-1] == rows[-1].bound
        assert set(chain) <= set(BOUNDS)


def test_the_largest_batch_that_fits_is_the_last_one_marked_as_fitting(result):
    row = result.fronts[FLOOR].knee
    most = most_that_fit(result, FLOOR, row, "bulk")
    assert [one.fits for one in batch_curve(result, FLOOR, row, "bulk", [most, most + 8])] == [True, False]


def test_a_link_twice_as_fast_saves_half_of_what_the_bytes_cost_and_no_latency(result):
    row = result.fronts[FLOOR].knee
    link = prices_of(machine_of(result, FLOOR)).prices.hardware.device_link
    layers = len(result.spec(row).moe_layer_ids)
    for one in link_twice(result, FLOOR, row):
        sent = result.costs[FLOOR][f"all_to_all_bytes:{one.point}"].iloc[row]
        assert one.seconds - one.faster == pytest.approx(0.5 * layers * sent / link.bandwidth.value)
        assert -1.0 < one.change < 0.0


def test_where_a_profile_measured_the_traffic_a_faster_link_has_no_answer(result, monkeypatch):
    from codesign.workbench import explore_sensitivity

    def measured(designs, point, prices):
        costs = design_costs(designs, point, prices)
        costs.parts["dispatch"].measured = costs.parts["dispatch"].seconds
        return costs

    monkeypatch.setattr(explore_sensitivity, "design_costs", measured)
    for one in link_twice(result, PROFILED, result.fronts[PROFILED].knee):
        assert one.change is None
        assert "profile measured" in one.note


def test_on_one_device_a_faster_link_changes_nothing(tmp_path):
    alone = explored(tmp_path, machines=SMALL_MACHINE, points=ONE_DEVICE, objectives='minimise = ["latency:alone"]')
    assert [one.change for one in link_twice(alone, FLOOR, 0)] == [0.0]


def test_an_unknown_operating_point_is_an_error_that_names_the_known_ones(result):
    with pytest.raises(UsageError, match="bulk"):
        batch_curve(result, FLOOR, 0, "blk")


def test_chosen_designs_show_the_tables_values_their_bands_and_the_change_against_the_base(result):
    found = choice(result, PROFILED)
    base = base_values(result, PROFILED)
    assert [one.row for one in found.designs] == list(result.fronts[PROFILED].chosen)
    assert found.designs[0].chosen_as[0] == "knee"
    for design in found.designs:
        costs = result.costs[PROFILED].iloc[design.row]
        first = design.values[0]
        assert first.value == costs["latency:interactive"]
        assert (first.low, first.high) == (costs["latency_low:interactive"], costs["latency_high:interactive"])
        assert first.change == pytest.approx(costs["latency:interactive"] / base["latency:interactive"] - 1)
        assert "ms to" in first.band


def test_every_chosen_design_says_how_much_of_its_time_stands_on_the_profile(result):
    for design in choice(result, PROFILED).designs:
        for point in design.points:
            share = result.costs[PROFILED][f"measured:{point.point}"].iloc[design.row]
            assert f"{100 * share:.0f} % of the time on the profile" in point.reason
    for design in choice(result, FLOOR).designs:
        assert all("nothing of it measured" in point.reason for point in design.points)
        assert all(not value.band for value in design.values)


def test_the_parts_of_a_bar_are_the_whole_pass(result):
    found = choice(result, PROFILED)
    for info, point in zip(parts_infos(found), ("interactive", "bulk"), strict=True):
        for bar, design in zip(info.bars, found.designs, strict=False):
            assert sum(bar.parts.values()) == pytest.approx(result.costs[PROFILED][f"latency:{point}"].iloc[design.row])
        assert info.bars[-1].name == "nemotron-3-super (the base)"


def test_all_designs_are_drawn_or_evenly_many_of_them_and_the_front_always(result):
    measures, found = measures_of(result, PROFILED), choice(result, PROFILED)
    whole = front_info(result, PROFILED, measures, found)
    assert len(whole.others.names) + len(whole.front.names) == len(result.designs)
    few = front_info(result, PROFILED, measures, found, most=10)
    assert len(few.others.names) == 10
    assert few.total == whole.total
    across = whole.others.values[:, 0]
    assert few.others.values[[0, -1], 0].tolist() == [across.min(), across.max()]
    assert [mark.label for mark in few.marks][-1] == "the base"


def test_a_front_is_drawn_for_each_pair_of_measures_with_the_third_as_colour(result, page):
    figure = page_figures(page)["machine-0-front"][0]
    assert figure.choices == (
        "latency at interactive and latency at bulk", "latency at interactive and parameters in all",
        "latency at bulk and parameters in all",
    )  # fmt: skip
    for drawn in figure.figures:
        assert drawn.layout.coloraxis.colorbar.title.text
        assert drawn.layout.xaxis.title.text.endswith(")")  # the unit


def test_lines_name_axes_that_differ_and_tell_those_that_do_not(result):
    info = lines_info(result, PROFILED, measures_of(result, PROFILED))
    assert "layers 88" in info.constant
    titles = [title for title, _, _ in info.axes]
    assert titles[-1] == "parameters in all (10⁹)"
    rows = list(result.fronts[PROFILED].rows)
    for title, places, ticks in info.axes:
        if title == "experts":
            texts = dict(ticks)
            shown = [int(texts[place].replace(",", "")) for place in places]
            assert shown == result.designs["experts"].iloc[rows].tolist()


def test_the_markdown_table_has_one_row_a_design_and_no_ragged_column(result):
    lines = markdown_of(choice(result, PROFILED), measures_of(result, PROFILED)).splitlines()
    assert len(lines) == 2 + len(result.fronts[PROFILED].chosen) + 1
    assert len({len(line) for line in lines}) == 1
    assert re.fullmatch(r"\|(-+\|)+", lines[1])


def test_sensitivity_rows_name_the_batch_of_every_change(result, page):
    infos = page.machines[1].curves
    assert [info.title for info in infos] == ["interactive (batch 8), bulk (batch 512)"]
    for curve, row in zip(infos[0].curves, sensitivity_rows(infos), strict=True):
        assert all(f"from batch {one.batch:,}" in row["waits for"] for one in curve.crossings)
        assert row["device link twice as fast"].startswith("interactive: ")


def test_the_page_tells_what_was_asked_what_was_removed_and_every_source(result, page):
    html = page_html(page)
    told = {fact.name: fact.value for group in page.asked for fact in group.facts}
    assert told["combinations of the axes"] == f"{result.counts['combinations']:,}"
    removed = result.counts["removed"]["max_total_params"]
    assert told["removed by max total params: parameters in all, at most"] == f"{removed:,}"
    for rows in result.provenance.values():
        for row in rows:
            assert str(row["source"]).split(":")[0] in html
    for warning in result.warnings:
        assert warning in html
    fields = json.loads(page.machines[0].choice.designs[0].config)
    assert fields["n_routed_experts"] == result.designs["experts"].iloc[result.fronts[PROFILED].knee]


def test_a_study_with_one_measure_still_has_a_figure(tmp_path):
    one = explored(tmp_path, machines=SMALL_MACHINE, objectives='minimise = ["latency:bulk"]')
    info = explore_page(one).machines[0].front
    assert [measure.name for measure in info.measures] == ["latency:bulk", "total_params"]
    assert "The study has one measure" in page_html(explore_page(one))


def test_a_base_that_does_not_fit_the_machine_is_said_and_not_drawn(tmp_path):
    small = ONE_DEVICE.replace("batch = 4", "batch = 1")
    alone = explored(tmp_path, machines=SMALL_MACHINE, points=small, objectives='minimise = ["latency:alone"]')
    found = choice(alone, FLOOR)
    assert found.base.points[0].seconds is None
    assert found.base.values[0].text == "–"
    assert found.designs[0].values[0].against == ""
    html = page_html(explore_page(alone))
    assert "The base is not drawn" in html


def test_models_compared_by_name_are_listed_and_a_bar_in_a_name_ends_no_cell(tmp_path):
    (tmp_path / "models.toml").write_text(
        '[[models]]\nname = "Super | as it is"\nmodel = "nemotron-3-super"\n[[models]]\nname = "standard"\nmodel = "nemotron-3-super"\n'
        f'counterpart = true\n{SMALL_MACHINE}{POINTS}[objectives]\nminimise = ["latency:bulk"]\nmaximise = ["total_params"]\n',
        encoding="utf-8",
    )
    page = explore_page(explore(tmp_path / "models.toml"))
    group = next(group for group in page.asked if group.title == "Models")
    assert {fact.name: fact.value for fact in group.facts} == {
        "Super | as it is": "nemotron-3-super", "standard": "nemotron-3-super; its standard counterpart",
    }  # fmt: skip
    assert "Super \\| as it is" in page.machines[0].markdown
    assert page_html(page)


def test_a_machine_without_a_front_says_so(result):
    nothing = dataclasses.replace(result, fronts={PROFILED: None, FLOOR: result.fronts[FLOOR]})
    html = page_html(explore_page(nothing))
    assert "So there is nothing to choose" in html


def test_the_page_of_many_designs_stays_small(result, tmp_path):
    import pandas as pd

    times = math.ceil(100_000 / len(result.designs))
    spread = np.repeat(np.linspace(1.0, 1.3, times), len(result.designs))
    many = dataclasses.replace(
        result,
        designs=pd.concat([result.designs] * times, ignore_index=True),
        costs={name: pd.concat([found] * times, ignore_index=True) for name, found in result.costs.items()},
    )
    for found in many.costs.values():
        for name in found.columns:
            if name.startswith("latency"):
                found[name] *= spread
    path = explore_report(many, tmp_path / "many.html")
    assert path.stat().st_size < 5_000_000
    assert "evenly many along latency at interactive" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "text"), [(None, ""), (-0.123, "−12.3 %"), (0.5, "+50.0 %"), (0.0, "±0 %"), (-0.0002, "less than 0.1 %")]
)
def test_a_change_is_written_with_its_sign(change, text):
    assert change_text(change) == text
