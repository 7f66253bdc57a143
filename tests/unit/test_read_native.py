"""Our own trace file: whole, mapped, and refused in every way that it can be wrong."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.traces import read_trace, save_trace
from safetensors.numpy import save_file
from trace_files import same_trace, small_trace

FACTS = {
    "schema": 1,
    "model": "m",
    "source": "s",
    "licence": "l",
    "synthetic": False,
    "num_experts": 8,
    "layer_ids": [0, 1],
    "notes": [],
}
EXPERTS = np.array([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], np.int16)
START = np.zeros(1, np.int64)


def write(path: Path, facts: dict[str, Any] | str | None = None, **tensors: Any) -> Path:
    parts = {"experts": EXPERTS, "sequence_start": START} | tensors
    text = facts if isinstance(facts, str) else json.dumps(FACTS | (facts or {}))
    save_file({k: v for k, v in parts.items() if v is not None}, path, metadata={"expert_trace": text})
    return path


def with_header(path: Path, source: Path, change: dict[str, Any]) -> Path:
    """`source` again, with entries of its header replaced."""
    data = source.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length]) | change
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return path


def test_everything_that_is_saved_is_read_again(tmp_path: Path) -> None:
    trace = small_trace(
        predicted_TLHM=np.full((10, 3, 2, 3), -1, np.int16),
        predicted_scores_TLHM=np.zeros((10, 3, 2, 3), np.float16),
        step_id_T=np.arange(10),
        notes=("first note", "zweite – Notiz"),
    )
    save_trace(trace, tmp_path / "t.safetensors")
    same_trace(read_trace(tmp_path / "t.safetensors"), trace)


def test_equal_traces_give_equal_bytes(tmp_path: Path) -> None:
    save_trace(small_trace(), tmp_path / "a")
    save_trace(small_trace(), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_arrays_are_views_of_the_mapped_file_and_cannot_be_written(tmp_path: Path) -> None:
    save_trace(small_trace(), tmp_path / "t")
    trace = read_trace(tmp_path / "t")
    for array in (trace.experts_TLK, trace.weights_TLK, trace.token_ids_T):
        assert array is not None
        assert not array.flags.writeable
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base, mmap.mmap)


def test_255_of_256_experts_is_kept_as_255(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"num_experts": 256}, experts=np.array([[[255, 0], [1, 254]]], np.uint8))
    assert read_trace(path).experts_TLK.tolist() == [[[255, 0], [1, 254]]]
    save_trace(read_trace(path), tmp_path / "again")
    again = read_trace(tmp_path / "again").experts_TLK
    assert again.tolist() == [[[255, 0], [1, 254]]]
    assert again.dtype == np.int16


def test_a_trace_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    for trace in (
        small_trace(num_experts=1 << 10, experts_TLK=np.full((10, 3, 2), 3, np.int16)),
        small_trace(weights_TLK=np.full((10, 3, 2), np.nan, np.float32)),
        small_trace(token_ids_T=np.full(10, -5, np.int32)),
    ):
        with pytest.raises(UsageError):
            save_trace(trace, tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "tensors", "said"),
    [
        ({"num_experts": 7}, {}, "7 is not an expert id (0 to 6"),
        ({}, {"experts": EXPERTS - 2}, "-2 is not an expert id"),
        ({}, {"experts": EXPERTS * 0 + 3}, "stands twice"),
        ({}, {"experts": EXPERTS.astype(np.float32)}, "F32"),
        ({}, {"experts": EXPERTS[0]}, "expected 3 sizes"),
        ({}, {"experts": None}, "missing"),
        ({}, {"sequence_start": None}, "missing"),
        ({}, {"sequence_start": np.array([0, 2])}, "sequence starts"),
        ({}, {"sequence_start": np.array([1])}, "sequence starts"),
        ({}, {"sequence_start": np.array([0, 2**63 - 1, -(2**63), -1, 1])}, "sequence starts"),
        ({}, {"sequence_start": START.astype(np.int32)}, "I32"),
        ({}, {"weights": np.full((2, 2, 2), np.nan, np.float32)}, "row 0, layer 0: nan"),
        ({}, {"weights": np.full((2, 2, 2), np.inf, np.float16)}, "row 0, layer 0: inf"),
        ({}, {"weights": np.zeros((2, 2, 3), np.float32)}, "weights must have shape [2, 2, 2]"),
        ({}, {"predicted": np.full((2, 2, 1, 2), 8, np.int16)}, "guess 1 layers ahead"),
        ({}, {"predicted": np.full((2, 2, 1, 2), 3, np.int16)}, "stands twice"),
        ({}, {"predicted_scores": np.zeros((2, 2, 1, 2), np.float32)}, "shape of predicted"),
        ({}, {"token_ids": np.array([3, -1], np.int32)}, "row 1: -1 is not a token id"),
        ({"layer_ids": [1, 0]}, {}, "ascending"),
        ({"layer_ids": [0]}, {}, "must name 2 layers"),
        ({"layer_ids": [0, 2**40]}, {}, "out of bounds"),
        ({"layer_ids": [0, True]}, {}, "layer_ids"),
        ({"num_experts": True}, {}, "num_experts"),
        ({"num_experts": 10**400}, {}, "num_experts"),
        ({"num_experts": 1 << 40}, {}, "num_experts must be from"),
        ({"schema": 2}, {}, "schema 2"),
        ({"notes": [3]}, {}, "notes"),
        ({"model": None}, {}, "model"),
        ("[1]", {}, "schema"),
        ("{", {}, "not JSON"),
    ],
)
def test_what_is_wrong_inside_is_named(tmp_path: Path, facts: Any, tensors: Any, said: str) -> None:
    path = write(tmp_path / "bad file", facts, **tensors)
    with pytest.raises(InputFileError) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_header_may_not_claim_more_than_the_file_holds(tmp_path: Path) -> None:
    good = write(tmp_path / "good")
    huge = {"dtype": "I16", "shape": [10**9, 10**9, 10**9], "data_offsets": [0, 16]}
    for entry, said in (
        (huge, "needs 2000000000000000000000000000 bytes"),
        (huge | {"data_offsets": [0, 2 * 10**27]}, "truncated?"),
        ({"dtype": "I16", "shape": [2, 2, -2], "data_offsets": [0, 16]}, "shape"),
        ({"dtype": "I16", "shape": [2, 2, 0], "data_offsets": [0, 0]}, "sizes above 0"),
        ({"dtype": "I16", "shape": [2, 2, 2], "data_offsets": [-16, 0]}, "shape"),
        ({"dtype": "I16", "shape": "222", "data_offsets": [0, 16]}, "shape"),
        ({"dtype": "I16"}, "data_offsets"),
        ([], "data_offsets"),
        (None, "data_offsets"),
    ):
        path = with_header(tmp_path / "bad", good, {"experts": entry})
        with pytest.raises(InputFileError, match="experts") as caught:
            read_trace(path)
        assert said in str(caught.value)


def test_a_safetensors_file_of_weights_is_no_trace(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(InputFileError, match="no expert trace"):
        read_trace(tmp_path / "model.safetensors")


def test_num_experts_must_agree_with_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t")
    assert read_trace(path, num_experts=8).num_experts == 8
    with pytest.raises(InputFileError, match="is 8, but 16"):
        read_trace(path, num_experts=16)
    with pytest.raises(UsageError, match="at least 1, got 0"):
        read_trace(path, num_experts=0)
