"""Curves over capacity: every point is a row's number, bounds stand in every panel, what is unknown is absent."""

from __future__ import annotations

import itertools

import pytest
from codesign.reports.capacity import MEASURES, capacity_info, draw_capacity
from codesign.reports.palette import looks
from codesign.reports.rows import bound_names, plain_rows, policy_names
from report_runs import BOUNDS, ODD_NAME, made_result

BY_COLUMN = {measure.column: measure for measure in MEASURES}


def rows_of(**options):
    return plain_rows(made_result(timeline=False, **options).rows)


@pytest.mark.parametrize("column", BY_COLUMN)
def test_every_point_of_a_curve_is_the_number_of_its_row(column):
    rows = rows_of(prefetchers=("none", "gate"))
    panels = capacity_info(rows, BY_COLUMN[column])
    assert [panel.prefetch for panel in panels] == ["none", "gate"]
    for panel in panels:
        for line in panel.lines:
            own = "none" if line.policy in BOUNDS else panel.prefetch
            expected = {
                (row["capacity_experts"], row["capacity_label"]): row[column]
                for row in rows
                if row["policy"] == line.policy and row["prefetch"] == own
            }
            assert {(p.capacity_experts, p.capacity_label): p.value for p in line.points} == expected
            assert line.is_bound == (line.policy in BOUNDS)
        assert [line.policy for line in panel.lines] == [*BOUNDS, *policy_names(rows)]


def test_points_ascend_in_capacity_whatever_order_the_rows_have():
    rows = rows_of()
    for panel in capacity_info(rows[::-1], BY_COLUMN["tpot_s"]):
        for line in panel.lines:
            assert [p.capacity_experts for p in line.points] == [51, 102, 256, 512]


def test_panels_of_one_measure_share_unit_and_top():
    rows = rows_of(prefetchers=("none", "gate", "perfect"))
    panels = capacity_info(rows, BY_COLUMN["bytes_moved"])
    assert len({(panel.unit, panel.top, panel.ticks) for panel in panels}) == 1
    assert panels[0].top == max(row["bytes_moved"] for row in rows)


def test_a_measure_unknown_in_every_row_has_no_panel():
    rows = rows_of(times=False)
    assert capacity_info(rows, BY_COLUMN["tpot_s"]) == ()
    assert capacity_info(rows, BY_COLUMN["hit_rate"]) != ()


def test_a_measure_unknown_in_one_row_leaves_out_that_point_and_no_other():
    rows = rows_of()
    gone = next(row for row in rows if row["policy"] == "lru" and row["capacity_label"] == "10%")
    del gone["tpot_s"]
    (panel,) = capacity_info(rows, BY_COLUMN["tpot_s"])
    points = {line.policy: [p.capacity_label for p in line.points] for line in panel.lines}
    assert points["lru"] == ["5%", "25%", "50%"]
    assert points["fifo"] == ["5%", "10%", "25%", "50%"]


def test_what_is_drawn_are_the_points_in_the_panels_unit():
    rows = rows_of()
    look = looks(policy_names(rows), bound_names(rows))
    (panel,) = capacity_info(rows, BY_COLUMN["tpot_s"])
    figure = draw_capacity(panel, look)
    assert not panel.is_single
    for line, drawn in zip(panel.lines, figure.data, strict=True):
        assert list(drawn.x) == [p.capacity_experts for p in line.points]
        assert list(drawn.y) == [p.value * panel.unit.factor for p in line.points]


def test_one_capacity_is_drawn_as_bars_with_the_same_numbers():
    rows = rows_of(capacities=(("5%", 51),))
    (panel,) = capacity_info(rows, BY_COLUMN["hit_rate"])
    assert panel.is_single
    (bars,) = draw_capacity(panel, looks(policy_names(rows), bound_names(rows))).data
    assert sorted(bars.x) == sorted(100 * row["hit_rate"] for row in rows)


def test_a_name_that_plotly_would_read_as_markup_is_escaped_in_the_figure_and_whole_in_the_data():
    rows = rows_of(policies=(ODD_NAME, "lru"))
    (panel,) = capacity_info(rows, BY_COLUMN["hit_rate"])
    assert ODD_NAME in {line.policy for line in panel.lines}
    names = [trace.name for trace in draw_capacity(panel, looks(policy_names(rows), BOUNDS)).data]
    odd = next(name for name in names if "SCRIPT" in name)
    assert "<b>" not in odd
    assert "&lt;b&gt;" in odd


def test_ticks_are_capacities_that_were_asked_for_and_stand_apart():
    labels = tuple((f"{experts}", experts) for experts in (100, 101, 102, 200, 400))
    (panel,) = capacity_info(rows_of(capacities=labels), BY_COLUMN["hit_rate"])
    assert [tick for tick, _ in panel.ticks] == [100, 200, 400]
    assert all(later / earlier > 1.1 for (earlier, _), (later, _) in itertools.pairwise(panel.ticks))


def test_a_logarithmic_axis_is_never_used_where_a_value_is_0_or_a_share():
    for column in ("hit_rate", "bytes_moved"):
        rows = rows_of()
        rows[0][column] = 0
        assert not any(panel.is_log for panel in capacity_info(rows, BY_COLUMN[column]))
    rows = rows_of()
    rows[0]["tpot_s"] = 1e3 * max(row["tpot_s"] for row in rows)
    assert all(panel.is_log for panel in capacity_info(rows, BY_COLUMN["tpot_s"]))
