"""The held-out check: the hash decides, held-out rows decide nothing, and figures are those of a hand-made error."""

from __future__ import annotations

import hashlib
from importlib import util

import numpy as np
import pandas as pd
import pytest
from codesign.errors import UsageError
from codesign.sim.measurement import Measurements
from codesign.sim.ops import Gemm
from codesign.sim.profile import Roof
from codesign.workbench.profile_check import (
    SHAPES,
    check_rows,
    coverage_passes,
    held_out,
    latent_against_standard,
    profile_check,
)

ROOF = Roof(1e12, {"bf16": 1e14}, processors=100)


def table() -> Measurements:
    rng = np.random.default_rng(0)
    sizes = [64 * i for i in range(1, 13)]
    rows = pd.DataFrame(
        [(m, n, k) for n in sizes for k in sizes for m in (1, 64, 1024)], columns=["m", "n", "k"]
    )
    rows["seconds"] = (
        ROOF.seconds(Gemm(rows.m.to_numpy(), rows.n.to_numpy(), rows.k.to_numpy())) + 5e-6
    ) * np.exp(rng.normal(0, 0.02, len(rows)))
    return Measurements(
        "gemm",
        rows.assign(
            framework="f", kernel="k", weights="bf16", activations="bf16", dtype="bfloat16", doubt=""
        ),
        "x",
    )


def test_a_shape_is_held_out_by_its_hash_with_all_its_rows() -> None:
    rows = table().rows
    held = held_out(rows, SHAPES["gemm"])
    expected = [
        int(hashlib.sha256(repr(("bfloat16", int(n), int(k))).encode()).hexdigest(), 16) % 5 == 0
        for n, k in zip(rows.n, rows.k, strict=True)
    ]
    assert held.tolist() == expected
    assert 0.1 < held.mean() < 0.3


def test_held_out_rows_decide_nothing() -> None:
    """Ruining what is held out changes its judged error, and not the law or its predictions."""
    clean = table()
    held = held_out(clean.rows, SHAPES["gemm"])
    ruined_rows = clean.rows.assign(seconds=np.where(held, clean.rows.seconds * 2, clean.rows.seconds))
    ruined = Measurements("gemm", ruined_rows, "x")
    first, second = check_rows(clean, held, ROOF), check_rows(ruined, held, ROOF)
    assert first.law == second.law
    assert first.median_ape is not None
    assert second.median_ape == pytest.approx(
        0.5, abs=0.03
    )  # everything predicted is half of what is claimed
    assert first.median_ape < 0.03
    assert first.coverage_90 is not None
    assert first.coverage_90 > 0.75


def test_doubtful_rows_are_left_out_with_their_reason_and_counted() -> None:
    rows = table().rows
    held = held_out(rows, SHAPES["gemm"])
    first = int(np.flatnonzero(held)[0])
    doubt = np.full(len(rows), "", object)
    doubt[first] = "disturbed"
    marked = Measurements("gemm", rows.assign(doubt=doubt.astype(str)), "x")
    row = check_rows(marked, held, ROOF)
    assert row.left_out == {"disturbed": 1}
    assert row.rows == int(held.sum()) - 1


@pytest.mark.parametrize(
    ("inside", "count", "passes"),
    [
        (180, 200, True),
        (165, 200, False),
        (195, 200, False),
        (9, 10, True),
        (5, 10, False),
        (30, 30, True),
        (60, 60, False),
    ],
)
def test_coverage_is_judged_by_its_share_or_by_the_exact_interval(
    inside: int, count: int, passes: bool
) -> None:
    assert coverage_passes(inside, count) is passes


def test_an_operation_without_a_check_is_refused() -> None:
    with pytest.raises(UsageError, match="known: gemm"):
        profile_check("h200_sxm", ["copy"])


@pytest.mark.slow
@pytest.mark.skipif(util.find_spec("aiconfigurator_core") is None, reason="needs the extra silicon")
def test_real_attention_of_an_a100_is_predicted_better_than_by_plain_interpolation() -> None:
    (row,) = profile_check("a100_sxm", ["attention_decode"])
    assert row.rows > 1000
    assert row.plain_ratio is not None
    assert row.plain_ratio < 1.0
    assert row.coverage_passes


@pytest.mark.slow
@pytest.mark.skipif(util.find_spec("aiconfigurator_core") is None, reason="needs the extra silicon")
def test_measured_latent_and_standard_mixtures_stand_above_their_floors() -> None:
    rows = latent_against_standard("h200_sxm")
    assert {row["tokens"] for row in rows} <= {1, 16, 256, 4096}
    assert {row["kind"] for row in rows} == {"latent", "standard"}
    assert all(row["seconds"] >= row["floor_s"] for row in rows)
    assert all(
        row["seconds"] < 40 * row["floor_s"] for row in rows
    )  # launches dominate the smallest, units would by 1000
