"""Dumps in exactly the form that SGLang, vLLM and moe-cache-lab write; and files that must never be run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.traces import read_trace, trace_info
from codesign.traces.readers.registry import read_any
from trace_files import npy_base64, save_sglang, sglang_pass, small_trace

torch = pytest.importorskip("torch")
PREFILL, DECODE = 1, 2


def logical(seed: int, layers: int, tokens: int, experts: int = 16, top_k: int = 2) -> np.ndarray:
    return np.argsort(np.random.default_rng(seed).random((layers, tokens, experts)), axis=2)[:, :, :top_k]


def test_sglang_ids_are_physical_and_map_back_through_the_recorded_placement(tmp_path: Path) -> None:
    prompt, step = logical(0, 3, 4), logical(1, 3, 1)
    to_logical = np.stack([np.random.default_rng(layer).permutation(16) for layer in range(3)])
    to_physical = np.argsort(to_logical, axis=1)
    placed = [np.stack([to_physical[layer][ids[layer]] for layer in range(3)]) for ids in (prompt, step)]
    save_sglang(
        tmp_path / "dump.pt",
        [
            sglang_pass(placed[0], pass_id=0, input_ids=[5, 6, 7, 8], positions=[0, 1, 2, 3], mode=PREFILL, extend=[4]),
            sglang_pass(placed[1], pass_id=1, input_ids=[9], positions=[4], mode=DECODE, extend=None),
        ],
        to_logical,
    )
    trace = read_trace(tmp_path / "dump.pt")
    np.testing.assert_array_equal(trace.experts_TLK, np.concatenate([prompt, step], axis=1).transpose(1, 0, 2))
    assert (trace.top_k, trace.num_experts) == (2, 16)  # eight columns are written, six of them padding
    assert trace.is_prefill_T is not None
    assert trace.is_prefill_T.tolist() == [True] * 4 + [False]
    assert trace.step_id_T is not None
    assert len(set(trace.step_id_T.tolist())) == 2


def test_sglang_dense_layers_are_left_out_and_others_keep_their_numbers(tmp_path: Path) -> None:
    ids = logical(0, 6, 3)
    ids[:3] = -1
    record = sglang_pass(ids, pass_id=0, input_ids=[1, 2, 3], positions=[0, 1, 2], mode=PREFILL, extend=[3])
    save_sglang(tmp_path / "dump.pt", [record], np.tile(np.arange(16), (6, 1)))
    trace = read_trace(tmp_path / "dump.pt")
    assert trace.layer_ids_L.tolist() == [3, 4, 5]
    assert int((trace.experts_TLK >= 0).sum()) == 3 * 3 * 2


def test_sglang_counts_alone_are_described_and_refused_for_replay(tmp_path: Path) -> None:
    counts = torch.zeros((4, 43, 16), dtype=torch.int32)
    counts[:, 3:, :6] = 1
    torch.save({"rank": 0, "logical_count": counts}, tmp_path / "stat.pt")
    info = trace_info(read_any(tmp_path / "stat.pt"))
    assert (info.kind, info.num_layers, info.logical) == ("counts", 40, 4 * 40 * 6)
    with pytest.raises(UsageError, match="counts"):
        read_trace(tmp_path / "stat.pt")


class _Bomb:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.target),)  # type: ignore[return-value]


@pytest.mark.parametrize("saved_by", ["torch", "pickle"])
def test_a_pickle_with_code_is_refused_and_its_code_is_not_run(tmp_path: Path, saved_by: str) -> None:
    fuse, path = tmp_path / "ran", tmp_path / "bomb.pt"
    if saved_by == "torch":
        torch.save({"records": [_Bomb(str(fuse))]}, path)
    else:
        path.write_bytes(pickle.dumps(_Bomb(str(fuse)), protocol=2))
    with pytest.raises(InputFileError, match="bomb"):
        read_trace(path)
    assert not fuse.exists()


def test_a_vllm_array_is_tokens_by_layers_by_k_and_zero_filled_layers_are_dense(tmp_path: Path) -> None:
    routes = np.zeros((5, 4, 2), np.int32)
    routes[:, 1:] = logical(0, 3, 5).transpose(1, 0, 2)
    routes[2, 2] = 0  # not captured: expert 0 cannot stand twice
    np.save(tmp_path / "routes.npy", routes)
    trace = read_trace(tmp_path / "routes.npy", num_experts=16)
    assert trace.layer_ids_L.tolist() == [1, 2, 3]
    assert trace.experts_TLK[2, 1].tolist() == [-1, -1]
    assert any("dense" in note for note in trace.notes)


def test_vllm_responses_as_nested_lists_and_as_base64_are_the_same_trace(tmp_path: Path) -> None:
    routes = logical(3, 3, 7).transpose(1, 0, 2).astype(np.int16)
    nested = {"prompt_routed_experts": routes[:4].tolist(), "choices": [{"routed_experts": routes[4:].tolist()}]}
    encoded = {"choices": [{"routed_experts": npy_base64(routes)}], "usage": {"prompt_tokens": 4}}
    traces = []
    for name, response in (("nested", nested), ("encoded", encoded)):
        (tmp_path / name).write_text(json.dumps(response) + "\n", encoding="utf-8")
        traces.append(read_trace(tmp_path / name, format="vllm", num_experts=16))
    for trace in traces:
        np.testing.assert_array_equal(trace.experts_TLK, routes)
        assert trace.is_prefill_T is not None
        assert trace.is_prefill_T.sum() == 4


def test_a_vllm_row_with_one_expert_twice_is_an_error_with_its_row(tmp_path: Path) -> None:
    routes = logical(0, 2, 4).transpose(1, 0, 2).astype(np.int16)
    routes[2, 1] = 7
    np.save(tmp_path / "routes.npy", routes)
    with pytest.raises(InputFileError, match="2"):
        read_trace(tmp_path / "routes.npy", num_experts=16)


def test_ids_that_wrapped_in_a_signed_byte_are_refused_not_dropped(tmp_path: Path) -> None:
    wrapped = np.array([0, 127, 128, 200, 255]).astype(np.uint8).view(np.int8)[:, None, None]
    np.save(tmp_path / "wrapped.npy", wrapped)
    with pytest.raises(InputFileError, match="-128"):
        read_trace(tmp_path / "wrapped.npy", num_experts=256)
    np.save(tmp_path / "whole.npy", wrapped.view(np.uint8))
    assert read_trace(tmp_path / "whole.npy", num_experts=256).experts_TLK.max() == 255


def test_a_moe_cache_lab_file_is_read_with_its_phases(tmp_path: Path) -> None:
    trace = small_trace(lengths=(5,), prompt=2)
    assert trace.weights_TLK is not None
    records: list[dict[str, object]] = [
        {
            "record_type": "metadata", "format": "moe-cache-lab.routing-jsonl", "format_version": 1, "model_id": "m",
            "num_experts": 16, "experts_per_token": 2,
        }
    ]  # fmt: skip
    prompt = [(token, layer) for layer in range(3) for token in range(2)]
    generated = [(token, layer) for token in range(2, 5) for layer in range(3)]
    for token, layer in prompt + generated:
        records.append(
            {
                "record_type": "routing_selection", "layer": layer, "phase": "prompt" if token < 2 else "generated",
                "token_position": token, "token_id": token + 10,
                "selected_experts": trace.experts_TLK[token, layer].tolist(),
                "selected_probabilities": trace.weights_TLK[token, layer].tolist(),
            }
        )  # fmt: skip
    path = tmp_path / "routing.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    found = read_trace(path)
    np.testing.assert_array_equal(found.experts_TLK, trace.experts_TLK)
    assert found.is_prefill_T is not None
    assert found.is_prefill_T.tolist() == [True, True, False, False, False]
