"""The page of a validation: both timelines on one clock, and nothing on it that was not measured or simulated."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from codesign.errors import UsageError
from codesign.reports.validation import (
    draw_shares,
    page_figures,
    two_timelines,
    validation_page,
    validation_report,
)
from codesign.workbench.validate_timeline import measured_segments
from small_validations import EXPERTS, LAYERS, record, scenario, validation


def test_the_segments_of_a_real_run_follow_one_another_and_begin_at_zero() -> None:
    found = [one for one in measured_segments(record(), [0, 1], LAYERS, EXPERTS) if one["lane"] == "compute"]
    assert found[0]["start_ns"] == 0
    for one, two in itertools.pairwise(found):
        assert one["start_ns"] < one["end_ns"] <= two["start_ns"]
    assert found[-1]["end_ns"] == 480 - 100
    assert {one["layer"] for one in found} == set(LAYERS)


def test_waiting_is_cut_out_of_the_experts_and_every_part_has_its_length() -> None:
    of_kind: dict[str, int] = {}
    for one in measured_segments(record(), [0, 1], LAYERS, EXPERTS):
        of_kind[one["kind"]] = of_kind.get(one["kind"], 0) + one["end_ns"] - one["start_ns"]
    assert of_kind["stall"] == 4 * 10
    assert of_kind["before"] == 4 * 10
    assert of_kind["decision"] == 4 * 2
    assert of_kind["after"] == 4 * 5
    # known to end of the four events, less waiting and what comes after
    assert of_kind["experts"] == 4 * 78 - 4 * 10 - 4 * 5


def test_copies_of_the_passes_shown_stand_in_their_lane_with_expert_and_layer() -> None:
    copies = [one for one in measured_segments(record(), [0, 1], LAYERS, EXPERTS) if one["lane"] == "copy"]
    assert [(one["name"], one["layer"], one["kind"]) for one in copies] == [
        ("expert 1", 3, "demand"), ("expert 2", 5, "prefetch"), ("expert 2", 3, "demand"),
    ]  # fmt: skip
    assert [one["pass"] for one in copies] == [0, 0, 1]


def test_simulated_lanes_stand_above_measured_ones_on_the_same_clock() -> None:
    info = two_timelines(scenario())
    assert info is not None
    assert info.lanes == ("sim: compute", "sim: copy", "run: compute", "run: copy")
    assert info.start_ns == 0
    assert info.passes == (0, 1)
    assert not info.is_cut


def test_a_validation_without_timelines_has_the_other_figures_and_one_without_scenarios_is_refused() -> None:
    bare = dataclasses.replace(validation(), scenarios=(dataclasses.replace(scenario(), simulated=(), measured=()),))
    assert set(page_figures(validation_page(bare))) == {"shares", "layers"}
    with pytest.raises(UsageError, match="judged no scenario"):
        validation_page(dataclasses.replace(validation(), scenarios=()))


def test_where_the_time_went_is_drawn_for_both_sides() -> None:
    bars = {bar.name: list(bar.x) for bar in draw_shares(scenario()).data}
    assert bars["stall"] == pytest.approx([30.0, 27.0])


def test_the_page_holds_verdict_table_and_calibration(tmp_path: Path) -> None:
    html = validation_report(validation(), tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("as was asked beforehand: yes", "paced · copy_s", "two cores", "90 % band"):
        assert words in html
