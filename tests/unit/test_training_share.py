"""A part of the trace that trains: nothing in it is counted, and what is fitted on it saw nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path

import codesign
import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.capacity_split import split_capacity
from codesign.sim.fitted_quotas import fitted_quotas, layer_curves
from codesign.workbench.replay import replay
from codesign.workbench.sweep import sweep
from command_line import workbench
from small_studies import write_study

LAYERS, EXPERTS, TOP_K = 4, 16, 2


@pytest.fixture(scope="module")
def trace() -> codesign.ExpertTrace:
    """Few experts are used in the first layer and all in the last."""
    rng = np.random.default_rng(3)
    spread = (3, 5, 9, EXPERTS)
    experts = np.stack(
        [[rng.choice(spread[layer], TOP_K, replace=False) for layer in range(LAYERS)] for _ in range(400)]
    ).astype(np.int16)
    return codesign.ExpertTrace(
        experts_TLK=experts, num_experts=EXPERTS, sequence_start_S=np.arange(0, 400, 50), model="drawn", source="drawn",
        synthetic=True, layer_ids_L=np.arange(LAYERS), licence="none needed",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_no_division_has_fewer_loads_than_the_fitted_one(seed: int) -> None:
    """Against all divisions, on curves of any form."""
    rng = np.random.default_rng(seed)
    loads = rng.integers(0, 50, (3, 6))
    least, experts = int(rng.integers(0, 2)), int(rng.integers(3, 16))
    found = fitted_quotas(loads, experts, least)
    assert found.sum() == experts
    assert found.min() >= least
    every = [q for q in itertools.product(range(least, 6), repeat=3) if sum(q) == experts]
    assert loads[range(3), found].sum() == min(loads[range(3), q].sum() for q in every)


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UsageError, match="9 experts cannot be divided over 2 layers of 1 to 4 each"):
        fitted_quotas(np.zeros((2, 5), np.int64), 9, 1)


def test_a_layer_s_curve_is_that_of_its_own_accesses() -> None:
    ids = np.array([0, 4, 0, 5, 1, 4, 0], np.int32)  # layers of four: 0 0 1 0 and 4 5 4
    assert layer_curves(ids, 2, 4).tolist() == [[4, 3, 2, 2, 2], [3, 3, 2, 2, 2]]


def test_all_policies_are_judged_on_the_same_rest(trace: codesign.ExpertTrace) -> None:
    rest = replay(
        trace, policies=("lru", "static:fit=train"), prefetch=("none", "hot"), capacities=("25%", "50%"), train_share=0.25
    )  # fmt: skip
    assert set(rest.rows["accesses"]) == {300 * LAYERS * TOP_K}
    assert rest.reporting["passes that train"] == "the first 100, not counted"
    assert rest.reporting["static sets fitted on"] == "the passes that train"
    warm = replay(trace, policies=("lru",), capacities=("50%",), train_share=0.25, warm=True)
    assert set(warm.rows["accesses"]) == {300 * LAYERS * TOP_K}


def test_a_set_fitted_on_the_training_part_is_blind_to_the_rest(trace: codesign.ExpertTrace) -> None:
    """With the rest's experts renamed, the set stays the same, so it hits as often as chance lets it."""
    renamed = np.array(trace.experts_TLK)
    renamed[100:] = EXPERTS - 1 - renamed[100:]
    other = codesign.ExpertTrace(
        experts_TLK=renamed, num_experts=EXPERTS, sequence_start_S=trace.sequence_start_S, model="drawn", source="drawn",
        synthetic=True, layer_ids_L=np.arange(LAYERS), licence="none needed",
    )  # fmt: skip
    hits = {}
    for name, one in (("as it was", trace), ("renamed", other)):
        found = replay(one, policies=("static:fit=train",), capacities=("50%",), train_share=0.25).rows
        hits[name] = found.loc[found["policy"] == "static:fit=train", "hit_rate"].item()
    uses = [np.bincount(trace.experts_TLK[:100, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]
    order = np.lexsort((np.arange(LAYERS * EXPERTS), -np.concatenate(uses)))[: LAYERS * EXPERTS // 2]
    for name, one in (("as it was", trace), ("renamed", other)):
        numbers = one.experts_TLK[100:] + EXPERTS * np.arange(LAYERS)[None, :, None]
        assert hits[name] == pytest.approx(np.isin(numbers, order).mean())
    assert hits["renamed"] < hits["as it was"] - 0.2


def test_fitted_quotas_follow_what_layers_need_and_beat_equal_ones(trace: codesign.ExpertTrace) -> None:
    rates = {}
    for scope in ("layer", "fitted"):
        result = replay(trace, policies=("lru",), capacities=("50%",), scope=scope, train_share=0.5)
        rates[scope] = result.rows.loc[result.rows["policy"] == "lru", "hit_rate"].item()
    quotas = result.reporting["at 50%"]["quotas, layer by layer"]
    assert sum(quotas) == LAYERS * EXPERTS // 2
    assert quotas[0] < split_capacity(LAYERS * EXPERTS // 2, LAYERS, "layer")[0] < quotas[-1]
    assert rates["fitted"] > rates["layer"] + 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": "fitted"}, "scope fitted fits its quotas on the part of the trace that trains: give a train share"),
        ({"policies": ("static:fit=train",)}, "'static:fit=train' is fitted on the part of the trace that trains"),
        ({"train_share": 1.0}, "the train share must be at least 0 and below 1, got 1"),
        ({"train_share": float("nan")}, "the train share must be at least 0 and below 1, got nan"),
        ({"train_share": 0.001}, "a train share of 0.001 is no whole pass of the trace's 400"),
    ],
)
def test_what_has_nothing_to_train_on_is_refused(trace: codesign.ExpertTrace, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replay(trace, capacities=("50%",), **options)


def test_a_study_has_the_share_as_an_axis_and_may_choose_a_fitted_set(tmp_path: Path) -> None:
    axes = 'policy = ["lru", "static:fit=train"]\nscope = ["layer", "fitted"]\ncapacity = ["50%"]\ntrain_share = [0, 0.25]\n'
    swept = sweep(write_study(tmp_path, axes), out=tmp_path / "run", workers=1)
    rows = swept.rows
    failed = rows[rows["status"] == "failed"]
    assert set(failed["train_share"]) == {0.0}
    assert all("give a train share" in error for error in failed["error"])
    judged = rows[rows["train_share"] == 0.25]
    assert judged["accesses"].nunique() == 1
    assert judged["is_causal"].all()
    assert len(judged) == 4


def test_the_command_has_the_option_and_says_what_trained() -> None:
    trace = str(codesign.bundled_trace_path())
    shown = workbench("replay", trace, "--policy", "lru", "--capacity", "50%", "--scope", "fitted", "--train-share", "0.2", "--json")
    assert shown.code == 0, shown.err
    assert '"passes that train": "the first' in shown.out
    refused = workbench("replay", trace, "--scope", "fitted", "--capacity", "50%")
    assert refused.code == 2
    assert "give a train share" in refused.err
