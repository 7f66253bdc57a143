"""`--json`: one document on one line of standard output, nothing else there, and only finite numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import all_commands, small_trace_file, workbench


def document(*arguments: object) -> dict[str, Any]:
    code, out, err = workbench(*arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1
    assert out.endswith("\n")

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is no JSON number")

    found = json.loads(out, parse_constant=refused)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return small_trace_file(tmp_path)


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_knows_json(words: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in all_commands()[words].params for name in parameter.opts}


def test_a_replay_without_a_machine_counts_and_has_no_times(trace: Path) -> None:
    found = document("replay", trace, "--policy", "lru", "--capacity", "25%")
    rows = {row["policy"]: row for row in found["rows"]}
    assert set(rows) == {"never", "unbounded", "belady-mandatory", "belady-bypass", "lru"}
    lru = rows["lru"]
    assert lru["capacity_experts"] == 12  # a quarter of 3 layers × 16 experts
    assert lru["logical"] == 80 * 3 * 2
    assert lru["hits"] + lru["misses"] == lru["accesses"] <= lru["logical"]
    assert sum(lru["misses_by_kind"].values()) == lru["misses"]
    for unknown in ("ttft_s", "tpot_s", "bytes_moved", "capacity_bytes", "late"):
        assert unknown not in lru
    assert found["reporting"]["contract"] == "slots"
    assert found["trace"]["sha256"]
    assert found["hardware"] is None
    assert found["sentence"]


def test_a_replay_on_a_machine_has_bytes_and_times(trace: Path, tmp_path: Path) -> None:
    workbench("trace", "synth", "olmoe.safetensors", "--model", "olmoe-1b-7b", "--tokens", "24", "--prefill", "8")
    arguments = ("olmoe.safetensors", "--model", "olmoe-1b-7b", "--hardware", "rtx-4090", "--capacity", "25%")
    found = document("replay", *arguments, "--policy", "lru", "--timeline", "steps.json", "--out", "run")
    rows = {row["policy"]: row for row in found["rows"]}
    assert rows["lru"]["bytes_moved"] == rows["lru"]["misses"] * 12_582_912  # one OLMoE expert in bf16
    assert rows["lru"]["capacity_bytes"] == 256 * 12_582_912
    assert 0 < rows["unbounded"]["tpot_s"] <= rows["lru"]["tpot_s"] <= rows["never"]["tpot_s"]
    assert rows["lru"]["ttft_s"] > 0
    assert json.loads(Path("steps.json").read_text())
    assert document("report", "run") == {"report": "run/report.html"}
    assert Path("run/report.html").stat().st_size > 10_000


def test_two_runs_print_the_same_bytes(trace: Path) -> None:
    arguments = ("replay", trace, "--policy", "random,lru", "--prefetch", "none,noisy", "--seed", "3", "--json")
    assert workbench(*arguments) == workbench(*arguments)


def test_traces_are_described_converted_and_made(trace: Path) -> None:
    assert document("trace", "info", trace)["tokens"] == 80
    converted = document("trace", "convert", trace, "permuted.safetensors", "--permute", "steps", "--seed", "1")
    assert converted["tokens"] == 80
    made = document("trace", "synth", "made.safetensors", "--layers", "2", "--experts", "8", "--top-k", "2")
    assert (made["tokens"], made["layers"], made["synthetic"]) == (1000, 2, True)
    assert document("trace", "info", "made.safetensors")["synthetic"] is True


def test_the_catalog_is_listed_and_shown(tmp_path: Path) -> None:
    models = {model["name"] for model in document("model", "list")["models"]}
    assert len(models) >= 14
    assert document("model", "show", "mixtral-8x7b")["total_params"] == 46_702_792_704  # case B15
    machines = {machine["name"] for machine in document("hardware", "list")["hardware"]}
    assert len(machines) >= 10
    assert document("hardware", "show", "h200-sxm")["name"] == "h200-sxm"


def test_an_error_leaves_standard_output_empty(trace: Path) -> None:
    code, out, err = workbench("replay", trace, "--policy", "lru,", "--json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_an_exploration_gives_the_designs_of_its_fronts_with_their_shapes_and_values(tmp_path: Path) -> None:
    study = tmp_path / "designs.toml"
    study.write_text(
        'base = "olmoe-1b-7b"\n[axes]\nexperts = [32, 64]\n[[machines]]\nhardware = "h200-sxm"\n[[points]]\nname = "one"\n'
        'batch = 1\ncontext = 100\n[objectives]\nminimise = ["latency:one"]\nmaximise = ["total_params"]\n'
    )
    found = document("explore", study)
    front = found["machines"]["h200-sxm"]["front"]
    assert {design["experts"] for design in front} == {32, 64}
    for design in front:
        assert 0 < design["latency:one"] < 1
        assert design["bound:one"] in ("weights", "kv", "compute", "link")
    assert found["counts"]["designs"] == 2
