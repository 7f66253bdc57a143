"""Export: the flags are the nearest an engine has, their numbers follow from the scenario, and what is lost is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from codesign.errors import UsageError
from codesign.workbench.export import ENGINES, export


def scenario(folder: Path, **options: str) -> Path:
    """OLMoE: 16 MoE layers of 64 experts."""
    fields = {
        "trace": '"t.jsonl"',
        "model": '"olmoe-1b-7b"',
        "policies": '["lru"]',
        "capacities": '["25%"]',
        **options,
    }
    path = folder / "scenario.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in fields.items() if value))
    return path


def flag(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_llama_cpp_keeps_whole_layers_and_sends_the_first_ones_to_the_processor(tmp_path: Path) -> None:
    found = export(scenario(tmp_path, batch="2", context="1024"), "llama.cpp")
    assert flag(found.command, "--n-cpu-moe") == "12"  # a quarter of 16 layers stays
    assert flag(found.command, "-c") == "2048"
    assert any("blk" in note and "|11)" in note and "exps" in note for note in found.notes)
    assert any("eviction by lru" in what for what in found.cannot)


def test_llama_cpp_with_less_than_a_layer_sends_all_experts_away_and_with_all_none(tmp_path: Path) -> None:
    assert "--cpu-moe" in export(scenario(tmp_path, capacities='["40"]'), "llama.cpp").command
    everything = export(scenario(tmp_path, capacities='["100%"]'), "llama.cpp")
    assert not {"--cpu-moe", "--n-cpu-moe"} & set(everything.command)
    assert everything.cannot == ()


def test_vllm_offloads_the_bytes_that_do_not_stay(tmp_path: Path) -> None:
    found = export(scenario(tmp_path), "vllm")
    bytes_away = 0.75 * 16 * 64 * 3 * 2048 * 1024 * 2
    assert float(flag(found.command, "--cpu-offload-gb")) == pytest.approx(bytes_away / 2**30, abs=0.01)
    ahead = export(scenario(tmp_path, prefetch='["gate:ahead=3"]'), "vllm")
    assert flag(ahead.command, "--offload-prefetch-step") == "3"
    assert any("gate:ahead=3" in what for what in ahead.cannot)


def test_sglang_keeps_as_many_experts_of_each_layer(tmp_path: Path) -> None:
    found = export(scenario(tmp_path), "sglang")
    assert flag(found.command, "--kt-num-gpu-experts") == "16"
    assert "--kt-enable-dynamic-expert-update" in found.command
    fixed = export(scenario(tmp_path, policies='["static"]'), "sglang")
    assert "--kt-enable-dynamic-expert-update" not in fixed.command


def test_experts_in_storage_are_said_to_be_beyond_every_engine(tmp_path: Path) -> None:
    for engine in ENGINES:
        assert any(
            "storage" in what for what in export(scenario(tmp_path, experts_home='"storage"'), engine).cannot
        )


@pytest.mark.parametrize(
    ("options", "to", "message"),
    [
        ({"policies": '["lru", "lfu"]'}, "vllm", "say which policy"),
        ({"model": ""}, "vllm", "names no model"),
        ({}, "tensorrt", "unknown engine 'tensorrt'"),
        ({"capacities": '["auto"]'}, "vllm", "names no hardware"),
    ],
)
def test_what_the_scenario_leaves_open_is_refused(
    tmp_path: Path, options: dict[str, str], to: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(scenario(tmp_path, **options), to)


def test_one_of_several_policies_is_chosen_by_name(tmp_path: Path) -> None:
    path = scenario(tmp_path, policies='["lru", "lfu"]')
    assert any("lfu" in what for what in export(path, "llama.cpp", policy="lfu").cannot)
    with pytest.raises(UsageError, match="not among those"):
        export(path, "llama.cpp", policy="fifo")
