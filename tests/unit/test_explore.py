"""Explorations: every design once, the same answer however it was interrupted, and a reason for each that is left out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.sim.catalog import load_model
from codesign.sim.designs import Designs
from codesign.traces import save_trace, synthesise
from codesign.workbench import explore as explore_module
from codesign.workbench.explore import explore
from codesign.workbench.explore_answer import config_fields
from codesign.workbench.explore_costs import load_of
from codesign.workbench.explore_lines import lines, table_rows
from codesign.workbench.explore_space import grid_space
from codesign.workbench.explore_study import Axes, Point, load_design_study

GRID = """
base = "nemotron-3-super"
[axes]
transform = ["standard", "latent-efficiency", "latent-accuracy"]
alpha = [1, 2, 4]
experts = [64, 128]
top_k = [2, 6]
latent = [0]
[[machines]]
hardware = "h200-sxm"
[[points]]
name = "small"
batch = 8
context = 1024
ep = 8
dp = 8
[[points]]
name = "large"
batch = 512
context = 1024
ep = 8
dp = 8
[objectives]
minimise = ["latency:small", "memory:small"]
maximise = ["total_params", "throughput:large"]
"""


def written(folder: Path, text: str = GRID) -> Path:
    path = folder / "designs.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_combination_is_one_design_and_twins_are_told_of(tmp_path: Path) -> None:
    result = explore(written(tmp_path))
    # 2 × 2 standard ones, and for α = 2 and 4 two latent variants of each
    assert len(result.designs) == 4 + 2 * 2 * 4
    assert result.counts["combinations"] == 36
    assert result.counts["left_out"] == {"the same as another": 16}
    assert not result.designs["design"].duplicated().any()
    for row in (0, 7, 19):
        spec = result.spec(row)
        assert spec.total_params == result.designs["total_params"].iloc[row]
        assert spec.active_params == result.designs["active_params"].iloc[row]


def test_the_front_holds_the_best_of_every_measure_and_its_knee(tmp_path: Path) -> None:
    result = explore(written(tmp_path))
    front = result.fronts["h200-sxm"]
    assert front is not None
    assert {front.knee, *front.best.values()} <= set(front.rows)
    costs, designs = result.costs["h200-sxm"], result.designs
    assert costs["latency:small"].iloc[front.best["latency:small"]] == costs["latency:small"].min()
    assert designs["total_params"].iloc[front.best["total_params"]] == designs["total_params"].max()
    assert costs["throughput:large"].iloc[front.best["throughput:large"]] == costs["throughput:large"].max()


def test_stopped_anywhere_and_resumed_it_leaves_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore_module, "_BLOCK", 7)
    study = written(tmp_path)
    whole = explore(study, out=tmp_path / "whole")
    real, seen = explore_module.costed, []

    def stops(*given: object) -> pd.DataFrame:
        seen.append(given)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(explore_module, "costed", stops)
    with pytest.raises(KeyboardInterrupt):
        explore(study, out=tmp_path / "cut")
    assert not (tmp_path / "cut" / "run.json").exists()
    with pytest.raises(UsageError, match="--resume"):
        explore(study, out=tmp_path / "cut")
    (tmp_path / "cut" / "parts" / "h200-sxm-00000.parquet").write_bytes(b"PAR1 broken")  # is made again
    seen.clear()
    monkeypatch.setattr(explore_module, "costed", lambda *given: (seen.append(given), real(*given))[1])
    explore(study, out=tmp_path / "cut", resume=True)
    assert len(seen) == 3
    seen.clear()
    explore(study, out=tmp_path / "cut", resume=True)
    assert not seen  # what is done is not done again
    for name in ("designs.parquet", "costs-h200-sxm.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "cut" / name), pd.read_parquet(tmp_path / "whole" / name))
    assert len(whole.designs) == 20


def test_a_changed_study_is_not_mixed_with_what_a_folder_holds(tmp_path: Path) -> None:
    explore(written(tmp_path), out=tmp_path / "run")
    with pytest.raises(UsageError, match="begun with another study"):
        explore(written(tmp_path, GRID.replace("[2, 6]", "[2, 4]")), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("kind", ["nsga2", "tpe", "random"])
def test_a_search_asks_the_same_again_and_finds_designs_of_the_grid(kind: str, tmp_path: Path) -> None:
    text = GRID + f'[search]\nkind = "{kind}"\nsamples = 40\nbatch = 10\nseed = 3\n'
    first = explore(written(tmp_path, text), out=tmp_path / "run")
    again = explore(written(tmp_path, text), out=tmp_path / "run", resume=True)
    pd.testing.assert_frame_equal(first.designs, again.designs)
    everything = set(explore(written(tmp_path)).designs["design"])
    assert set(first.designs["design"]) <= everything
    assert first.counts["asked"] == 40
    assert not first.designs["design"].duplicated().any()


def test_a_family_keeps_what_equals_the_base_and_width_can_be_fitted_to_it(tmp_path: Path) -> None:
    text = GRID + '[family]\niso = "flops"\ntolerance = 0.05\nmatch_width = true\n'
    result = explore(written(tmp_path, text))
    target = Designs.of([load_model("nemotron-3-super")]).active_flops_per_token[0]
    assert (np.abs(result.designs["active_flops_per_token"] / target - 1) <= 0.05).all()
    unfitted = explore(written(tmp_path, text.replace("match_width = true", "match_width = false")))
    assert len(unfitted.designs) < unfitted.counts["costed"]
    assert len(unfitted.designs) < len(result.designs)
    with pytest.raises(UsageError, match=r"within 0\.001 % of the base"):
        explore(written(tmp_path, text.replace("0.05", "0.00001").replace("match_width = true", "match_width = false")))


def test_named_models_stand_in_their_order_under_their_names(tmp_path: Path) -> None:
    head = """
[[models]]
name = "published"
model = "nemotron-3-super"
[[models]]
name = "standard"
model = "nemotron-3-super"
counterpart = true
[[models]]
name = "finer"
model = "nemotron-3-super"
split = 2
"""
    text = head + GRID[GRID.index("[[machines]]") :]
    result = explore(written(tmp_path, text))
    assert result.designs["design"].tolist() == ["published", "standard", "finer"]
    assert result.designs["transform"].tolist() == ["as published", "standard counterpart", "other split"]
    assert result.designs["total_params"].iloc[0] == load_model("nemotron-3-super").total_params
    mixed = text + '\n[[models]]\nname = "gated"\nmodel = "mixtral-8x7b"\n'
    with pytest.raises(UsageError, match="gate"):
        explore(written(tmp_path, mixed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('base = "nemotron-3-super"', 'base = "llama-3.1-8b"'), "is dense"),
        (("alpha = [1, 2, 4]", "alpha = []"), "axis alpha has no values"),
        (("alpha = [1, 2, 4]", "alpha = [nan]"), "axis alpha: every value must be from 1"),
        (("experts = [64, 128]", "experts = [99999999999999999999]"), "axis experts: every value must be from 1"),
        (('"latent-accuracy"', '"latent-acuracy"'), "did you mean 'latent-accuracy'"),
        (("experts = [64, 128]", "expert = [64, 128]"), "did you mean 'experts'"),
        (("latency:small", "latency:tiny"), "unknown point of the measure latency 'tiny'"),
        (('"memory:small"', '"memory"'), "write memory:NAME"),
        (('"total_params", ', '"total_params:small", '), "write total_params"),
        (("ep = 8\ndp = 8\n[objectives]", "ep = 3\ndp = 8\n[objectives]"), "does not divide"),
        (("batch = 8\n", "batch = 12\n"), "cannot be dealt out"),
        (("[objectives]", "[limits]\nmax_total_params = 1e9\nmin_total_params = 2e9\n[objectives]"), "contradict"),
        (("[objectives]", "[limits]\nmax_params = 1e9\n[objectives]"), "unknown limit 'max_params'"),
        (('"total_params", ', '"loss:ludziejewski-2025", '), "accuracy_tokens"),
        (("[objectives]", "[search]\nkind = \"tpe\"\n[objectives]"), "samples"),
        (('hardware = "h200-sxm"', 'hardware = "rtx-4090"'), "memory"),
        (("ep = 8\ndp = 8\n[objectives]", "ep = 16\ndp = 16\n[objectives]"), "joins 8 devices"),
    ],
)  # fmt: skip
def test_a_study_that_cannot_be_says_what_is_wrong(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    text = GRID.replace(*change)
    assert text != GRID
    with pytest.raises(UsageError, match=message):
        explore(written(tmp_path, text))


def test_no_feasible_design_names_how_many_each_constraint_removed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no design of 20 is feasible: max_total_params removes 20"):
        explore(written(tmp_path, GRID.replace("[objectives]", "[limits]\nmax_total_params = 1e9\n[objectives]")))


def test_a_law_of_accuracy_that_refuses_every_design_says_why(tmp_path: Path) -> None:
    text = "accuracy_tokens = 1e12\n" + GRID.replace('"total_params", ', "").replace(
        'minimise = ["latency:small"', 'minimise = ["loss:krajewski-2024", "latency:small"'
    )
    with pytest.raises(UsageError, match="loss:krajewski-2024: the law refuses every design"):
        explore(written(tmp_path, text))


def test_files_that_are_no_study_are_refused_by_name(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"base = ", b""):
        path = tmp_path / "a study ü.toml"
        path.write_bytes(content)
        with pytest.raises(InputFileError, match=r"a study ü\.toml"):
            load_design_study(path)


def test_shapes_beyond_what_was_measured_are_widened_or_left_out_as_asked(tmp_path: Path) -> None:
    text = GRID.replace('hardware = "h200-sxm"', 'hardware = "h200-sxm"\nprofile = "h200-sxm-trtllm"')
    text = text.replace("experts = [64, 128]", "experts = [128, 2048]").replace("context = 1024\n", 'context = 1024\nweights = "fp8"\n')
    widened = explore(written(tmp_path, text))
    costs = widened.costs["h200-sxm-trtllm"]
    low, high = costs["latency_low:small"], costs["latency_high:small"]
    assert (low <= costs["latency:small"]).all()
    assert (costs["latency:small"] <= high).all()
    beyond = costs["extrapolated:small"] == 1.0
    assert beyond.any()
    refused = explore(written(tmp_path, 'extrapolate = "refuse"\n' + text)).costs["h200-sxm-trtllm"]
    assert refused["latency:small"].isna().tolist() == (beyond | costs["latency:small"].isna()).tolist()


def test_the_load_of_a_trace_is_the_power_law_of_its_entropy_or_uniform_where_it_is_more_even(tmp_path: Path) -> None:
    found = []
    for skew in (0.0, 0.7, 1.2, 3.0):
        trace = synthesise(num_tokens=3000, num_layers=4, num_experts=32, top_k=4, rng=np.random.default_rng(1), skew=skew)
        save_trace(trace, tmp_path / f"{skew}.safetensors")
        point = Point(name="x", batch=1, context=1, load=f"trace:{skew}.safetensors")
        found.append(load_of(point, tmp_path / "study.toml"))
    assert found[0] == "uniform"
    exponents = [float(name.removeprefix("power_law_")) for name in found[1:]]
    assert 0.01 < exponents[0] < exponents[1] < exponents[2] == 1.2  # what is more uneven than the law gets its end


def test_a_million_combinations_are_refused_before_they_are_made() -> None:
    axes = Axes(experts=tuple(range(1, 2001)), width=tuple(range(1, 2001)))
    with pytest.raises(UsageError, match="4,000,000 combinations"):
        grid_space(load_model("nemotron-3-super"), axes)


def test_what_the_terminal_shows_has_units_bands_and_reasons(tmp_path: Path) -> None:
    result = explore(written(tmp_path))
    (first, *_) = table_rows(result, "h200-sxm")
    assert "knee" in first["chosen as"]
    assert first["latency:small"].endswith("ms")
    assert first["memory:small"].endswith("GiB")
    told = "\n".join(lines(result))
    assert "20 designs of 36 combinations" in told
    assert "16 for the same as another" in told


def test_the_config_fields_of_a_design_are_those_that_differ_from_its_base(tmp_path: Path) -> None:
    result = explore(written(tmp_path))
    row = int(np.flatnonzero(result.designs["design"] == "N256-K6-m2688-l1024-s5376")[0])
    assert config_fields(result.base, result.spec(row)) == {"n_routed_experts": 256, "num_experts_per_tok": 6}
    standard = dataclasses.replace(result).spec(int(np.flatnonzero(result.designs["latent"] == 0)[0]))
    assert config_fields(result.base, standard)["moe_latent_size"] is None
