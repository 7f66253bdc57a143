"""The study `replay`: what it refuses, what it keeps, and that a saved run reads back as it was."""

from __future__ import annotations

import json
from pathlib import Path

import codesign
import numpy as np
import pandas as pd
import pytest
from codesign.workbench.cases import cache_sizes
from small_scenarios import trace_of


def small_trace() -> codesign.ExpertTrace:
    return codesign.synthesise(
        num_tokens=40, num_layers=4, num_experts=16, top_k=2, num_sequences=2, rng=np.random.default_rng(0)
    )


@pytest.mark.parametrize("capacity", ["0", "1", "0%"])
def test_a_capacity_below_one_tokens_top_k_is_refused_with_both_numbers(capacity: str) -> None:
    with pytest.raises(codesign.UsageError, match=r"fewer than the 2 .*top-k"):
        codesign.replay(small_trace(), capacities=(capacity,))


def test_a_quota_for_each_layer_below_top_k_is_refused_with_both_numbers() -> None:
    with pytest.raises(codesign.UsageError, match=r"quota of 1 .*2 that one token"):
        codesign.replay(small_trace(), capacities=("7",), scope="layer")


def test_a_capacity_above_all_experts_is_all_experts_and_says_so() -> None:
    result = codesign.replay(small_trace(), capacities=("1000",))
    assert set(result.rows["capacity_experts"]) == {0, 64}
    assert any("more than all 64" in warning for warning in result.warnings)


def test_under_access_a_capacity_below_top_k_is_flagged_as_void() -> None:
    _, warnings = cache_sizes(
        ["1"], num_layers=1, num_experts=8, top_k=4, scope="global", contract="access", expert_bytes=None, auto_experts=None
    )
    assert "void" in warnings[0]


def test_capacities_in_bytes_and_auto_need_a_model() -> None:
    for capacity in ("1MiB", "auto"):
        with pytest.raises(codesign.UsageError, match="--model"):
            codesign.replay(small_trace(), capacities=(capacity,))


def test_without_a_machine_there_are_counts_and_no_times() -> None:
    result = codesign.replay(small_trace(), capacities=("25%",))
    assert result.rows["tpot_s"].isna().all()
    assert result.rows["bytes_moved"].isna().all()
    assert "tpot_s" not in result.to_dict()["rows"][0]


def test_a_model_of_another_shape_is_refused() -> None:
    with pytest.raises(codesign.UsageError, match="experts a layer"):
        codesign.replay(small_trace(), model="mixtral-8x7b")


def test_gate_prefetching_without_guesses_is_refused_before_anything_runs() -> None:
    trace = trace_of([[[0, 1], [1, 2]]], 4)
    with pytest.raises(codesign.UsageError, match="guesses"):
        codesign.replay(trace, prefetch=("gate",), capacities=("50%",))


def test_a_saved_run_reads_back_as_it_was(tmp_path: Path) -> None:
    result = codesign.replay(small_trace(), capacities=("25%", "50%"), out=tmp_path / "run")
    again = codesign.load_run(tmp_path / "run")
    pd.testing.assert_frame_equal(again.rows, result.rows)
    pd.testing.assert_frame_equal(again.layers, result.layers)
    assert again.reporting == json.loads(json.dumps(result.reporting))


def test_kinds_of_miss_add_up_and_layers_add_up_to_the_row() -> None:
    result = codesign.replay(small_trace(), capacities=("25%",))
    kinds = result.rows[["collision", "compulsory", "capacity"]].sum(axis=1)
    assert (kinds == result.rows["misses"]).all()
    assert result.layers["misses"].sum() == result.rows["misses"].sum()


def test_two_runs_with_one_seed_give_the_same_document() -> None:
    first, second = (codesign.replay(small_trace(), policies=("random",), capacities=("25%",), seed=3) for _ in range(2))
    assert first.to_dict() == second.to_dict()


def test_a_first_scenario_is_commented_runs_and_is_not_overwritten(tmp_path: Path) -> None:
    path = codesign.write_first_scenario(tmp_path / "first.toml")
    assert "#" in path.read_text()
    scenario = codesign.load_scenario(path)
    assert scenario.capacities == ("10%", "25%", "50%")
    with pytest.raises(codesign.RunError, match="exists"):
        codesign.write_first_scenario(path)


def test_an_unknown_key_of_a_scenario_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('trace = "t"\npolices = ["lru"]\n')
    with pytest.raises(codesign.InputFileError, match="did you mean 'policies'"):
        codesign.load_scenario(path)


def test_a_miss_policy_says_what_it_did_and_bounds_lose_nothing() -> None:
    common = {"model": "small-olmoe-stdlib", "hardware": "rtx-4090", "policies": ["lru"], "capacities": ["15%"]}
    plain = codesign.replay(codesign.bundled_trace_path(), **common)  # type: ignore[arg-type]
    host = codesign.replay(codesign.bundled_trace_path(), miss="host:when=always", **common)  # type: ignore[arg-type]
    skipped = codesign.replay(codesign.bundled_trace_path(), miss="skip:below=0.2", **common)  # type: ignore[arg-type]
    assert "lossy_weight_share" not in plain.rows
    lru = {name: run.rows[run.rows["policy"] == "lru"].iloc[0] for name, run in
           (("plain", plain), ("host", host), ("skipped", skipped))}  # fmt: skip
    assert lru["host"]["computed_on_host"] > 0
    assert lru["host"]["bytes_moved"] < lru["plain"]["bytes_moved"]
    assert 0 < lru["skipped"]["lossy_weight_share"] < 0.2
    assert lru["skipped"]["skipped"] > 0
    bounds = skipped.rows[skipped.rows["is_bound"]]
    assert (bounds["skipped"] == 0).all()
    assert "weight changed" in skipped.table
    with pytest.raises(codesign.UsageError, match=r"no \[host_cores\]"):
        codesign.replay(codesign.bundled_trace_path(), **(common | {"hardware": "apple-m3-max"}), miss="host")  # type: ignore[arg-type]
