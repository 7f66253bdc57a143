"""Points of a calibration: a folder's rows, or published ones, beside the profile's answers, judged as the checks judge them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from calibration_folders import OPERATIONS, ROOF, calibrated
from codesign.errors import InputFileError, UsageError
from codesign.files import sha256_of
from codesign.kernels.silicon import Published
from codesign.reports.calibration import calibration_html, calibration_info
from codesign.reports.calibration_table import operation_figures
from codesign.sim.measurement import Measurements, load_measurements
from codesign.sim.ops import Gemm, GroupedGemm
from codesign.sim.profile import HOW, fit_profile, load_profile, save_profile
from codesign.workbench import profile_check
from codesign.workbench.calibration_points import calibration_points, load_roof, save_roof
from codesign.workbench.calibration_published import published_points


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("calibration")
    calibrated(found)
    return found


@pytest.fixture(scope="module")
def points(folder):
    return calibration_points(folder)


def test_every_row_of_a_table_is_a_point_with_its_own_work_and_the_profile_s_own_answer(folder, points):
    table, profile = load_measurements(folder / "gemm"), load_profile(folder / "profile")
    found = next(one for one in points.operations if one.operation == "gemm")
    assert found.measured_s.tolist() == table.rows["seconds"].tolist()
    assert found.held_out.tolist() == table.rows["held_out"].tolist()
    for row in range(0, len(table), 7):
        shape = table.rows.iloc[row]
        one = Gemm(int(shape.m), int(shape.n), int(shape.k), shape.weights, shape.activations, shape.out)
        answer = profile.query(one)
        assert found.predicted_s[row] == pytest.approx(float(answer.seconds), rel=1e-9)
        assert HOW[found.how[row]] == answer.words[0]
        assert (found.flops[row], found.bytes[row]) == (one.flops, one.bytes)
        assert f"m={one.m}, n={one.n}, k={one.k}, weights=bf16" in found.label(row)


def test_sources_are_named_with_the_hash_of_the_file_as_it_lies_there(folder, points):
    assert [source.what for source in points.sources] == ["profile", *OPERATIONS]
    for source in points.sources:
        assert source.sha256 == sha256_of(folder / source.file)
        assert source.licence == "own measurement"


def test_published_tables_are_judged_row_by_row_as_profile_check_judges_them(monkeypatch):
    rng, roof = np.random.default_rng(0), profile_check.published_roof("h200_sxm")
    sizes = [64 * i for i in range(1, 11)]
    rows = pd.DataFrame([(m, n, k) for n in sizes for k in sizes for m in (1, 64)], columns=["m", "n", "k"])
    floor = roof.seconds(Gemm(rows.m.to_numpy(), rows.n.to_numpy(), rows.k.to_numpy()))
    rows["seconds"] = (floor + 5e-6) * np.exp(rng.normal(0, 0.05, len(rows)))
    rows = rows.assign(
        framework="f", kernel="k", weights="bf16", activations="bf16", dtype="bfloat16", doubt=""
    )
    held = profile_check.held_out(rows, profile_check.SHAPES["gemm"])
    rows.loc[np.flatnonzero(held)[:2], "doubt"] = "disturbed"
    rows.loc[np.flatnonzero(held)[2], "kernel"] = "nowhere else"
    found = {"gemm": Published(Measurements("gemm", rows, "a source", "a licence"), {}, ())}
    monkeypatch.setattr("codesign.kernels.silicon.read_published", lambda *_: found)
    monkeypatch.setattr(profile_check, "read_published", lambda *_: found)
    (checked,) = profile_check.profile_check("h200_sxm", ["gemm"], threads=1)
    points = published_points("h200_sxm", ["gemm"], threads=1)
    told = operation_figures(points.operations[0], points.roof)
    assert told.judged_rows == checked.rows == int(held.sum()) - 3
    assert told.left_out == checked.left_out
    assert told.median_ape == pytest.approx(checked.median_ape)
    assert told.p90_ape == pytest.approx(checked.p90_ape)
    assert told.coverage_90 == pytest.approx(checked.coverage_90)
    assert told.roofline_share == pytest.approx(1 / (int(held.sum()) - 2))
    info = calibration_info(points)
    assert info.title == "Check of published measurements: h200_sxm"
    assert "gemm: 2 held-out rows are not judged: disturbed." in info.warnings


def test_a_model_never_measured_is_judged_as_profile_check_judges_it_and_drawn_once_under_the_roof(
    monkeypatch,
):
    rng, roof = np.random.default_rng(0), profile_check.published_roof("h200_sxm")
    shapes = [
        (2**a, 2**b, top_k, experts)
        for a in (10, 11, 12)
        for b in (9, 10)
        for top_k, experts in ((2, 16), (4, 32))
    ]
    rows = pd.DataFrame([(t, *shape) for shape in shapes for t in (1, 8, 64)],
                        columns=["tokens", "hidden", "width", "top_k", "num_experts"])  # fmt: skip
    work = GroupedGemm(**{name: rows[name].to_numpy() for name in rows})
    rows["seconds"] = (roof.seconds(work) + 5e-6) * np.exp(rng.normal(0, 0.05, len(rows)))
    rows = rows.assign(framework="f", kernel="k", weights="bf16", activations="bf16", dtype="bfloat16", doubt="", tp=1,
                       ep=1, distribution="balanced")  # fmt: skip
    rows.loc[5, "doubt"] = "disturbed"
    found = {"moe": Published(Measurements("moe", rows, "a source", "a licence"), {}, ())}
    monkeypatch.setattr("codesign.kernels.silicon.read_published", lambda *_: found)
    monkeypatch.setattr(profile_check, "read_published", lambda *_: found)
    checked = profile_check.profile_check("h200_sxm", ["moe"], threads=1)
    points = published_points("h200_sxm", ["moe"], threads=1)
    assert [one.operation for one in points.operations] == [one.operation for one in checked]
    for one, row in zip(points.operations, checked, strict=True):
        told = operation_figures(one, points.roof)
        assert told.judged_rows == row.rows
        assert told.median_ape == pytest.approx(row.median_ape)
        assert told.coverage_90 == pytest.approx(row.coverage_90)
    assert points.operations[1].held_out.all()
    info = calibration_info(points)
    assert [cloud.operation for cloud in info.roofline.clouds] == ["moe"]
    assert f"on {checked[0].rows} held-out rows" in info.sentence
    assert "each model (hidden, width, top-k, experts) predicted without any of its own" in calibration_html(
        info
    )


def test_an_operation_without_a_check_is_refused_before_anything_is_read():
    with pytest.raises(UsageError, match="operation 'copy' has no held-out check; known: gemm"):
        published_points("h200_sxm", ["copy"])


def test_a_roof_reads_back_as_it_was_kept(tmp_path):
    assert load_roof(tmp_path) is None
    save_roof(ROOF, tmp_path)
    kept = load_roof(tmp_path)
    assert (kept.bandwidth, dict(kept.peaks)) == (ROOF.bytes_per_s, dict(ROOF.flops_per_s))


@pytest.mark.parametrize(
    ("roof", "message"),
    [
        (SimpleNamespace(bytes_per_s=0.0, flops_per_s={"bf16": 1e9}), "field bytes_per_s: must be a rate above 0"),
        (SimpleNamespace(bytes_per_s=1e9, flops_per_s={"bf16": math.nan}), "field bf16: must be a rate above 0"),
        (SimpleNamespace(bytes_per_s=1e9, flops_per_s={}), "FLOP/s of at least one format"),
    ],
)  # fmt: skip
def test_a_roof_that_cannot_be_is_refused_with_its_field(tmp_path, roof, message):
    save_roof(roof, tmp_path)
    with pytest.raises(InputFileError, match=message):
        load_roof(tmp_path)


def test_a_missing_table_a_changed_one_and_a_wrong_journal_are_errors_that_name_the_file(tmp_path):
    calibrated(tmp_path, ("norm",))
    journal = tmp_path / "journal.jsonl"
    good = journal.read_text()
    journal.write_text(good + '{"key": "norm tok')  # torn by an interruption
    assert len(calibration_points(tmp_path).operations[0].spread) == 30
    journal.write_text(good + '{"key": "norm"}\n')
    with pytest.raises(InputFileError, match=r"journal\.jsonl: line 92: is no visit: KeyError\('round'\)"):
        calibration_points(tmp_path)
    journal.unlink()
    assert operation_figures(calibration_points(tmp_path).operations[0], None).spread_median is None
    table = next(tmp_path.glob("norm-*.parquet"))
    content = table.read_bytes()
    table.write_bytes(content + b"x")
    with pytest.raises(InputFileError, match="was changed or is torn"):
        calibration_points(tmp_path)
    table.write_bytes(content)
    (tmp_path / "norm.toml").unlink()
    with pytest.raises(InputFileError, match=r"norm\.toml: no such file"):
        calibration_points(tmp_path)


def test_a_profile_of_published_tables_is_refused_with_the_command_that_reports_them(tmp_path, folder):
    table = load_measurements(folder / "norm")
    published = Measurements("norm", table.rows, "a package", "a licence", {"hardware": "h200-sxm"})
    save_profile(fit_profile([published], system="h200_sxm", models=False, threads=1), tmp_path / "profile")
    with pytest.raises(UsageError, match=r"published tables of h200_sxm.*profile check --system h200_sxm"):
        calibration_points(tmp_path)


def test_rows_with_and_without_a_latent_or_a_window_are_all_asked_as_calibrate_asks_them(tmp_path):
    result = calibrated(tmp_path, ("moe_layer", "attention_decode"))
    points = calibration_points(tmp_path)
    for one, printed in zip(points.operations, result.summaries, strict=True):
        told = operation_figures(one, points.roof)
        assert told.judged_rows == printed.held_out_rows
        assert np.isfinite(one.predicted_s).all()
        # the page asks the saved profile, whose surfaces are kept in float32
        assert told.median_ape == pytest.approx(printed.median_ape, rel=1e-5)
        assert told.roof_share_median == pytest.approx(printed.roof_share_median)
    labels = [points.operations[0].label(row) for row in range(30)]
    assert {"latent=" in label for label in labels} == {True, False}
