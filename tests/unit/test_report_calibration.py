"""The page of a calibration: its figures are those that `calibrate` and `profile check` print, and nothing is left out unsaid."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from calibration_folders import OPERATIONS, ROOF, calibrated
from codesign.errors import RunError, UsageError
from codesign.reports import calibration_agreement
from codesign.reports.calibration import (
    calibration_figures,
    calibration_html,
    calibration_info,
    calibration_report,
)
from codesign.reports.calibration_agreement import agreement_info, draw_agreement, draw_residuals
from codesign.reports.calibration_coverage import Coverage, answers_info, coverage_info
from codesign.reports.calibration_roofline import draw_roofline, roofline_info
from codesign.reports.calibration_table import operation_figures
from codesign.reports.log_axes import decades, errors, prefixed
from codesign.reports.palette import looks
from codesign.sim.profile import HOW, Roof
from codesign.workbench import profile_check
from codesign.workbench.calibration_points import (
    CalibrationPoints,
    OperationPoints,
    calibration_points,
)
from report_runs import ODD_NAME


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("calibration")


@pytest.fixture(scope="module")
def result(folder):
    return calibrated(folder)


@pytest.fixture(scope="module")
def points(folder, result) -> CalibrationPoints:
    return calibration_points(folder)


def of(points: CalibrationPoints, operation: str) -> OperationPoints:
    return next(one for one in points.operations if one.operation == operation)


def made(operation="gemm", measured=(1e-3,), predicted=(1e-3,), half=0.1, how=1, flops=1e6, judged=True):
    """Points by hand: bands are `half` of the predicted time to each side."""
    count = len(measured)
    measured, predicted = np.array(measured, float), np.array(predicted, float)
    return OperationPoints(
        operation, pd.DataFrame({"m": np.arange(count)}), measured, predicted, predicted * (1 - half),
        predicted * (1 + half), np.full(count, how, np.int8), np.full(count, float(flops)), np.full(count, 1e5),
        np.full(count, "bf16"), np.full(count, True), np.full(count, judged), "surface",
    )  # fmt: skip


def whole(*operations, system="a machine", roof=None):
    return CalibrationPoints(system, False, operations, roof, "measured", {"cpu": system}, ())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_page_s_figures_are_those_that_calibrate_prints(points, result, operation):
    told = operation_figures(of(points, operation), points.roof)
    printed = next(one for one in result.summaries if one.operation == operation)
    for name in ("rows", "held_out_rows", "median_ape", "p90_ape", "coverage_90", "spread_median", "spread_p90",
                 "roof_share_median"):  # fmt: skip
        # calibrate asks the profile that it fitted, the page the saved one, whose surfaces are kept in float32
        assert getattr(told, name) == pytest.approx(getattr(printed, name), rel=1e-5), name
    assert told.judged_rows == told.held_out_rows


def test_judged_rows_are_drawn_once_each_at_their_measured_and_predicted_times(points):
    found = of(points, "gemm")
    info = agreement_info(found)
    assert info.total == len(info.rows) == int(found.held_out.sum())
    expected = sorted(zip(found.measured_s[found.held_out], found.predicted_s[found.held_out], strict=True))
    line, *drawn = draw_agreement(info).data
    assert list(line.x) == list(line.y)
    assert sorted(pair for one in drawn for pair in zip(one.x, one.y, strict=True)) == expected
    ends = [one.y[place] + one.error_y.array[place] for one in drawn for place in range(len(one.y))]
    assert sorted(ends) == pytest.approx(sorted(found.high_s[found.held_out]))


def test_residuals_stand_over_flops_or_over_bytes_where_nothing_is_computed(points):
    for operation, unit in (("gemm", "FLOP"), ("copy", "B")):
        found = of(points, operation)
        info = agreement_info(found)
        assert info.size_unit == unit
        size = found.flops if unit == "FLOP" else found.bytes
        _, *drawn = draw_residuals(info).data
        assert sorted(x for one in drawn for x in one.x) == sorted(size[found.held_out])
        ratios = (found.predicted_s / found.measured_s)[found.held_out]
        assert sorted(y for one in drawn for y in one.y) == pytest.approx(sorted(ratios))


def test_a_row_outside_its_band_is_drawn_apart_from_those_inside():
    info = agreement_info(made(measured=(1.0, 1.0, 1.0), predicted=(1.0, 1.05, 1.3)))
    assert [row.is_inside for row in info.rows] == [True, True, False]
    names = {trace.name: len(trace.x) for trace in draw_agreement(info).data[1:]}
    assert names == {"interpolated": 2, "interpolated, outside its band": 1}


def test_whiskers_are_left_out_where_they_would_cover_the_points_and_of_many_rows_an_even_choice_is_drawn(
    monkeypatch,
):
    monkeypatch.setattr(calibration_agreement, "MOST_DRAWN", 100)
    times = np.linspace(1e-6, 1e-3, 250)
    info = agreement_info(made(measured=times, predicted=times))
    assert info.total == 250
    assert [row.measured_s for row in info.rows] == times[::3].tolist()
    assert not info.has_bands
    assert all(trace.error_y.array is None for trace in draw_agreement(info).data)
    assert "84 of 250 drawn" in calibration_html(
        calibration_info(whole(made(measured=times, predicted=times)))
    )


@pytest.mark.parametrize("ends", [(1e-6, 1.1e-6), (3e-6, 4e-3), (1e-9, 1e3), (5.0, 5.0), (1e12, 9e14)])
def test_a_logarithmic_axis_holds_its_values_and_a_few_round_ticks(ends):
    axis = decades(ends, prefixed("s"))
    assert axis.low < ends[0] <= ends[1] < axis.high
    assert 1 <= len(axis.ticks) <= 7
    for value, _ in axis.ticks:
        assert axis.low <= value <= axis.high
        assert f"{value:.0e}"[0] in "1235"
        assert value == pytest.approx(float(f"{value:.0e}"))
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


@pytest.mark.parametrize("ratios", [(1.0,), (0.97, 1.05), (0.5, 1.2), (0.01, 1.0), (1.0, 40.0), ()])
def test_an_axis_of_errors_is_as_far_up_as_down_and_its_ticks_say_what_they_stand_at(ratios):
    axis = errors(ratios)
    assert axis.low * axis.high == pytest.approx(1.0)
    assert all(axis.low < ratio < axis.high for ratio in ratios)
    for value, text in axis.ticks:
        assert 1 + float(text.removesuffix(" %").replace("−", "-")) / 100 == pytest.approx(value)
    places = [math.log(value) for value, _ in axis.ticks]
    assert places == sorted(places)
    assert min(np.diff(places), default=1.0) >= 2 * math.log(axis.high) / 11 - 1e-12


@pytest.mark.parametrize(
    ("value", "text"), [(2.5e-6, "2.5 µs"), (1e-3, "1 ms"), (20.0, "20 s"), (1e3, "1 ks"), (3e-10, "0.3 ns")]
)
def test_ticks_have_a_decimal_prefix_and_no_trailing_noughts(value, text):
    assert prefixed("s")(value) == text


def test_no_row_measured_above_its_floor_stands_above_the_roof(points):
    info = roofline_info(points.operations, points.roof)
    assert info.without_flops == ("copy",)
    assert [cloud.operation for cloud in info.clouds] == ["gemm", "norm"]
    assert info.peaks == (("bf16", 1e11), ("fp32", 5e10))
    for cloud in info.clouds:
        found = of(points, cloud.operation)
        assert cloud.total == len(cloud.rows) == len(found.measured_s)
        for row in cloud.rows:
            roof = min(ROOF.flops_per_s[row.arithmetic], ROOF.bytes_per_s * row.flops_per_byte)
            assert row.flops_per_s < roof / 1.4  # times are half as much again as the floor


def test_the_roof_is_drawn_where_bandwidth_and_peaks_put_it(points):
    info = roofline_info(points.operations, points.roof)
    figure = draw_roofline(info, looks(["gemm", "norm"], ()))
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    flat = {line.y[0]: line.x[0] for line in lines if line.y[0] == line.y[1]}
    assert flat == {1e11: 10.0, 5e10: 5.0}
    (slope,) = [line for line in lines if line.y[0] != line.y[1]]
    assert [y / x for x, y in zip(slope.x, slope.y, strict=True)] == pytest.approx([1e10, 1e10])
    assert (slope.x[1], slope.y[1]) == (10.0, 1e11)
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert texts == ["fp32 50 GFLOP/s", "bf16 100 GFLOP/s", "slope: 10.0 GB/s"]


def test_peaks_of_one_height_are_one_line_with_both_names():
    fp16 = replace(made(), arithmetic=np.array(["fp16"]))
    info = roofline_info([made(), fp16], Roof(1e12, {"bf16": 1e14, "fp32": 1e13}))
    assert info.peaks == (("bf16, fp16", 1e14),)  # fp16 has no peak of its own here: the next wider one's


@pytest.mark.parametrize(("inside", "rows"), [(0, 4), (3, 3), (18, 20), (170, 200), (9_000, 10_000)])
def test_wilson_s_ends_are_where_the_observed_share_is_1_96_deviations_away(inside, rows):
    for end in Coverage("x", inside, rows, True).interval:
        if end in (0.0, 1.0):
            assert inside / rows == end
        else:
            assert abs(inside / rows - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / rows))


def test_coverage_is_judged_by_the_rule_of_profile_check(points):
    for one in coverage_info(points.operations):
        assert one.holds == profile_check.coverage_passes(one.inside, one.rows)
    bad = made(measured=np.full(30, 2.0), predicted=np.full(30, 1.0))
    assert [one.holds for one in coverage_info([bad])] == [False]
    assert "does not hold; of the held-out rows it has gemm 0.0 %" in " ".join(
        calibration_info(whole(bad)).warnings
    )


def test_the_kinds_of_answer_add_up_to_the_held_out_rows(points):
    for one in answers_info(points.operations):
        assert sum(one.counts.values()) == int(of(points, one.operation).held_out.sum())
    (far,) = answers_info([made(measured=(1, 2, 3), predicted=(1, 2, 3), how=HOW.index("extrapolated"))])
    assert far.counts == {"extrapolated": 3}
    told = operation_figures(made(how=HOW.index("extrapolated")), None)
    assert (told.extrapolated_share, told.roofline_share) == (1.0, 0.0)


def test_without_a_kept_roof_shares_of_it_are_unknown_and_it_is_said(tmp_path):
    calibrated(tmp_path, ("norm",), with_roof=False)
    info = calibration_info(calibration_points(tmp_path))
    assert info.figures[0].roof_share_median is None
    assert info.roofline.bytes_per_s is None
    assert "unknown" in info.table.rows[0]
    assert any("does not hold the measured roof" in warning for warning in info.warnings)
    lines = [trace for trace in draw_roofline(info.roofline, info.looks).data if trace.mode == "lines"]
    assert lines == []


def test_an_operation_of_which_nothing_is_judged_has_no_error_and_no_figures():
    info = calibration_info(whole(made(judged=False)))
    assert info.figures[0].median_ape is None
    assert info.coverage == ()
    assert calibration_figures(info)[info.sections[0].key] == ()
    assert "the error of these times is unknown" in info.sentence
    assert "No row of it is held out and judged" in calibration_html(info)


def test_a_calibration_without_operations_is_refused():
    with pytest.raises(UsageError, match="no operation"):
        calibration_info(whole())


def test_few_rows_and_errors_above_the_bar_are_warned_of():
    warnings = " ".join(calibration_info(whole(made(measured=(1.0,) * 5, predicted=(1.2,) * 5))).warnings)
    assert "Fewer than 20 held-out rows: gemm (5)" in warnings
    assert "above the bar (median 7 % and p90 20 %" in warnings
    fine = made(measured=(1.0,) * 40, predicted=(1.01,) * 40)
    assert "above the bar" not in " ".join(calibration_info(whole(fine)).warnings)


def test_a_folder_that_is_no_calibration_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no profile\.toml"):
        calibration_report(tmp_path, tmp_path / "page.html")


def test_a_page_is_a_file_and_where_it_cannot_be_written_that_is_an_error(points, tmp_path):
    assert calibration_report(points, tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match=r"is a directory; give the report a file name"):
        calibration_report(points, tmp_path)
    with pytest.raises(RunError, match="cannot write"):
        calibration_report(points, tmp_path / "page.html" / "page.html")


class Page(HTMLParser):
    """Tags, the text outside scripts, and each script's text."""

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.texts, self.scripts, self._in = [], [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._in = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, text):
        if self._in == "script":
            self.scripts.append(text)
        elif self._in is None:
            self.texts.append(text)


def test_odd_names_are_text_on_the_page_and_whole_in_its_data():
    plain = Page(calibration_html(calibration_info(whole(made("gemm"), roof=Roof(1e9, {"bf16": 1e9})))))
    odd = whole(made(ODD_NAME), system=ODD_NAME, roof=Roof(1e9, {"bf16": 1e9}))
    page = Page(calibration_html(calibration_info(odd)))
    assert sorted(page.tags) == sorted(plain.tags)
    assert sum(ODD_NAME in text for text in page.texts) >= 4
    data = next(json.loads(text) for text in page.scripts if text.lstrip().startswith('{"title"'))
    assert data["operations"][0]["operation"] == ODD_NAME


def test_the_page_asks_for_nothing_outside_itself(points, tmp_path):
    html = Path(calibration_report(points, tmp_path / "page.html")).read_text(encoding="utf-8")
    outside = html.replace(max(Page(html).scripts, key=len), "")  # Plotly's own source names its home page
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in outside
    data = next(json.loads(text) for text in Page(html).scripts if text.lstrip().startswith('{"title"'))
    assert [one["operation"] for one in data["operations"]] == list(OPERATIONS)
