"""Twins and models left out: the same work divided otherwise is found, and nobody is judged by itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from codesign.sim.ops import DecodeAttention, GroupedGemm
from codesign.sim.profile import Roof
from codesign.sim.profile.axes import axes_of
from codesign.sim.profile.grids import Grid, grids_of
from codesign.sim.profile.models import fit_new_models
from codesign.sim.profile.twins import NONE, twins

ROOF = Roof(1e12, {"bf16": 1e14}, processors=100)


def decode_grid() -> Grid:
    """Every (KV heads, group width) at batches 1 to 16; the time jumps with batch times KV heads alone."""
    cases = list(product((1, 2, 4, 8), (1, 4), (1, 2, 4, 8, 16), (64, 1024)))
    rows = pd.DataFrame(
        [(kv, kv * ratio, batch, context) for kv, ratio, batch, context in cases],
        columns=["kv_heads", "heads", "batch", "context"],
    ).assign(head_dim=128, framework="f", kernel="k", activations="bf16", kv_cache="bf16")
    one = DecodeAttention(
        *(rows[n].to_numpy() for n in ("batch", "context", "heads", "kv_heads", "head_dim"))
    )
    blocks = (rows.batch * rows.kv_heads).to_numpy()
    rows["seconds"] = (ROOF.seconds(one) + ROOF.launch_s) * (1.0 + 0.5 * (np.log2(blocks) % 3))
    (grid,) = grids_of(axes_of("attention_decode"), rows, ROOF)
    return grid


def test_twins_tell_a_jump_that_only_batch_times_heads_decides() -> None:
    grid = decode_grid()
    told = twins(grid, grid.shapes, np.zeros_like(grid.ratio))
    assert told is not None
    has = told[..., 1] < NONE
    assert has.mean() > 0.8  # all but the corners
    assert told[..., 0][has] == pytest.approx(grid.ratio[has], abs=1e-9)
    assert set(np.unique(told[..., 1])) <= {1.0, 2.0, 3.0, NONE}


def test_a_shape_is_no_twin_of_itself() -> None:
    grid = decode_grid()
    guess = np.zeros_like(grid.ratio)
    before = twins(grid, grid.shapes[:1], guess[:1])
    grid.ratio[0] += 1.0
    after = twins(grid, grid.shapes[:1], guess[:1])
    assert before is not None
    assert after is not None
    assert (before == after).all()


def test_a_shape_without_twins_is_told_nothing() -> None:
    grid = decode_grid()
    odd = grid.shapes[:1].copy()
    odd[0, grid.axes.shape.index("heads")] *= 7.0
    told = twins(grid, odd, np.zeros((1, grid.ratio.shape[1])))
    assert told is not None
    assert (told[..., 0] == 0.0).all()
    assert (told[..., 1] == NONE).all()


def mixtures() -> list[Grid]:
    """Twelve models on one kernel, and one model on a kernel of its own; 2 % noise on a smooth law."""
    rng = np.random.default_rng(0)
    models = [(h, w, k, n) for h in (1024, 2048, 4096) for w, k, n in ((512, 8, 64), (1024, 4, 128), (2048, 2, 16), (4096, 8, 32))]  # fmt: skip
    cases = [("many", *m, tp, t) for m in models for tp in (1, 2) for t in (1, 16, 256, 4096)]
    cases += [("lone", *models[0], tp, t) for tp in (1, 2) for t in (1, 16, 256, 4096)]
    rows = pd.DataFrame(cases, columns=["kernel", "hidden", "width", "top_k", "num_experts", "tp", "tokens"])
    rows = rows.assign(
        ep=1, distribution="balanced", framework="f", gated=True, weights="bf16", activations="bf16"
    )
    one = GroupedGemm(*(rows[n].to_numpy() for n in ("tokens", "hidden", "width", "num_experts", "top_k")), tp=rows.tp.to_numpy(), distribution="balanced")  # fmt: skip
    rows["seconds"] = (ROOF.seconds(one) + ROOF.launch_s) * 1.4 * np.exp(rng.normal(0, 0.02, len(rows)))
    return grids_of(axes_of("moe"), rows, ROOF)


def test_a_model_left_out_is_predicted_from_the_others_within_the_noise() -> None:
    pytest.importorskip("lightgbm")
    grids = mixtures()
    new = fit_new_models(grids, ROOF, seed=0, threads=1)
    many = next(i for i, grid in enumerate(grids) if grid.group["kernel"] == "many")
    assert np.median(np.abs(grids[many].ratio - new.guess[many])) < 0.04  # twice the noise
    assert 0.8 < (np.abs(grids[many].ratio - new.guess[many]) <= new.half[many]).mean() <= 1.0
    assert new.supported[many].all()
    assert not new.supported[1 - many].any()


def test_what_a_left_out_model_took_does_not_change_its_own_prediction() -> None:
    """Ruining one model by a factor that lengths cannot follow moves its guess far less than its times."""
    pytest.importorskip("lightgbm")
    grids, ruined = mixtures(), mixtures()
    many = next(i for i, grid in enumerate(grids) if grid.group["kernel"] == "many")
    lost = (grids[many].shapes[:, :4] == grids[many].shapes[0, :4]).all(axis=1)
    ruined[many].ratio[lost] += 2.0
    first, second = (fit_new_models(g, ROOF, seed=0, threads=1).guess[many][lost] for g in (grids, ruined))
    assert np.abs(first - second).max() < 0.2
