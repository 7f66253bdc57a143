"""The page of a validation: both timelines on one clock, and nothing on it that was not measured or simulated."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from codesign.errors import UsageError
from codesign.reports.validation import (
    draw_layers,
    draw_shares,
    draw_two_timelines,
    page_figures,
    two_timelines,
    validation_page,
    validation_report,
)
from codesign.workbench.validate_result import Metric
from codesign.workbench.validate_segments import measured_segments
from small_validations import EXPERTS, LAYERS, record, scenario, validation


def test_computing_and_deciding_follow_one_another_without_a_gap_from_zero_to_the_end() -> None:
    found = [one for one in measured_segments(record(), [0, 1], LAYERS, EXPERTS) if one["lane"] != "link"]
    assert found[0]["start_ns"] == 0
    for one, two in pairwise(found):
        if one["pass"] == two["pass"]:
            assert one["start_ns"] < one["end_ns"] == two["start_ns"]
    assert found[-1]["end_ns"] == 480 - 100


def test_every_part_has_its_length_and_every_expert_its_name() -> None:
    found = measured_segments(record(), [0, 1], LAYERS, EXPERTS)
    of_kind: dict[str, int] = {}
    for one in found:
        of_kind[one["kind"]] = of_kind.get(one["kind"], 0) + one["end_ns"] - one["start_ns"]
    assert (of_kind["before"], of_kind["decision"], of_kind["unrouted"]) == (4 * 10, 4 * 2, 4 * 1)
    assert (of_kind["stall"], of_kind["routed"], of_kind["after"]) == (4 * 10, 4 * (19 + 43), 4 * 5)
    routed = [(one["layer"], one["expert"]) for one in found if one["kind"] == "routed"]
    assert routed == [(3, 0), (3, 2), (5, 0), (5, 2)] * 2


def test_copies_that_started_in_the_passes_shown_stand_there_whole() -> None:
    copies = [one for one in measured_segments(record(), [0, 1], LAYERS, EXPERTS) if one["lane"] == "link"]
    assert [(one["name"], one["layer"], one["kind"], one["pass"]) for one in copies] == [
        ("expert 1", 3, "demand", 0), ("expert 2", 5, "prefetch", 0), ("expert 2", 3, "demand", 1),
    ]  # fmt: skip
    assert all(one["end_ns"] - one["start_ns"] == 25 for one in copies)


def test_simulated_lanes_stand_above_measured_ones_on_the_same_clock() -> None:
    both = two_timelines(scenario())
    assert both is not None
    lanes = [f"{side}: {lane}" for side in ("simulated", "measured") for lane in ("compute", "host", "link")]
    assert list(both.both.lanes) == lanes
    assert both.both.start_ns == 0
    figure = draw_two_timelines(both)
    assert figure.layout.shapes[0].y0 == 2.5  # between the third lane from above and the fourth
    bars = figure.data
    drawn = {(int(y), base, x) for bar in bars for y, base, x in zip(bar.y, bar.base, bar.x, strict=True)}
    assert {(y + 3, base, x) for y, base, x in drawn if y < 3} == {one for one in drawn if one[0] >= 3}


def test_the_caption_says_which_passes_and_which_repeat_are_shown() -> None:
    both = two_timelines(scenario())
    assert both is not None
    assert both.caption.startswith("passes 0 to 1; measured: repeat 3 of 7, whose makespan was 50.0 ms")


def test_shares_are_percent_of_the_makespan_and_layers_carry_the_models_numbers() -> None:
    bars = {bar.name: list(bar.x) for bar in draw_shares(scenario()).data}
    assert bars["waiting for a copy"] == pytest.approx([30.0, 27.0])
    (layers,) = draw_layers(scenario()).data
    assert list(layers.x) == ["3", "5"]
    assert list(layers.y) == pytest.approx([-2.0, 4.0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Yes: the worst TPOT is off by 4.8 %"),
        ({"ledgers_equal": False}, "but the ledgers differ, so the answer is no"),
        (
            {"metrics": (Metric("ttft_s", 3.0, None, None, 2.0, None),)},
            "No: 1 of 1 are further off; the worst TTFT is off by 50.0 %",
        ),
    ],
)
def test_the_verdict_gives_the_answer_and_its_reason(changed: dict[str, object], words: str) -> None:
    found = validation(**changed)
    assert words in validation_page(found).verdict
    assert found.ok is validation_page(found).verdict.startswith(
        "Asked beforehand: within 10% in every scenario. Yes"
    )


def test_restless_repeats_are_warned_of() -> None:
    restless = validation(metrics=(Metric("tpot_s", 1.0, 0.9, 1.1, 1.0, 0.4),))
    assert "The repeats themselves differ by 40.0 %" in validation_page(restless).warnings[0]


def test_a_validation_without_timelines_has_the_other_figures_and_one_without_scenarios_is_refused() -> None:
    assert set(page_figures(validation_page(validation(timelines=None)))) == {"shares", "layers"}
    with pytest.raises(UsageError, match="judged no scenario"):
        validation_page(dataclasses.replace(validation(), scenarios=()))


def test_the_page_holds_verdict_ledgers_costs_with_units_machine_and_inputs(tmp_path: Path) -> None:
    html = validation_report(validation(), tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        "Asked beforehand",
        "ledgers are equal",
        "150 µs",
        "× or ÷ 1.100",
        "two cores",
        "t.safetensors",
        "4.00 GB/s",
    ):
        assert words in html
    names = validation_page(validation("a & b")).shown
    assert (
        page_figures(validation_page(validation("a & b")))["shares"][0].choices
        == (names[0][0],)
        == ("a & b",)
    )
