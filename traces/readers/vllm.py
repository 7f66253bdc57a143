"""Routed experts as vLLM returns them per request (`--enable-return-routed-experts`), saved as `.npy`, `.npz` or JSON.

What vLLM has written (all read here):

- vllm-project/vllm #28284 (January 2026; `fused_moe/routed_experts_capturer.py` at commit 00bd1493b3e8):
  `CompletionOutput.routed_experts`, one int32 array [tokens, num_hidden_layers, K]. Its buffers are filled with
  zeros over *all* layers, dense ones included.
- vllm-project/vllm #39917 (v0.21, `docs/training/routed_experts_replay.md` at commit 0087e005dec9): int16, MoE
  layers only, split into `prompt_routed_experts` on the response and `routed_experts` on each choice, nested lists
  in JSON; positions of a cached prefix are −1.
- since v0.22 (vllm-project/router #184, vllm-project/vllm #51906): `choices[i].routed_experts` is one base64 string
  of a `.npy` file, [tokens − 1, layers, K], uint8, uint16 or int32, because the last token is never fed back.
- front ends around it (ai-dynamo/dynamo #10529): `{"data": base64, "shape": […], "dtype": "int16", "start": n}`.

A JSON file holds one response or request a line: `routed_experts` (and `prompt_routed_experts`) at its top or in
`choices`; `prompt_token_ids`, `token_ids`, `usage.prompt_tokens` and `model` are used where they stand. A `.npz`
holds `routed_experts` (and `prompt_routed_experts`) of one request, or one array per request.

Padding: −1 in every slot is a token that was not computed (a cached prefix): left out. A row of K equal zeros is
missing (K above 1: expert 0 cannot stand twice); a layer of nothing else is dense. Both are reported in the notes;
every other expert that stands twice in a row is an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError, UsageError
from ..expert_trace import PADDING, ExpertTrace
from ..ids import id_dtype
from . import npy
from .options import ReadOptions
from .rows import ranges, short_rows
from .source import Source
from .text import BOM, json_blocks

KEYS = ("routed_experts", "prompt_routed_experts")
DTYPES = {
    name: np.dtype(name).newbyteorder("<") for name in ("int8", "uint8", "int16", "uint16", "int32", "int64")
}
SLICE_ROWS = 16384


@dataclass(slots=True)
class Request:
    """One sequence: routes [tokens, layers, K], how many of its first rows are the prompt (None: unsaid)."""

    where: str
    routes: NDArray[np.integer]
    prompt_rows: int | None = None
    token_ids: list[int] | None = None


def recognises(source: Source) -> bool:
    head = source.head
    if head.startswith(npy.MAGIC):
        return True
    if head.startswith(npy.ZIP_MAGIC):
        names = npy.zip_names(source)
        return bool(names) and all(name.endswith(".npy") for name in names)
    text = head.removeprefix(BOM).lstrip()
    return text.startswith((b"{", b"[")) and any(f'"{key}"'.encode() in head for key in (*KEYS, "choices"))


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    notes: list[str] = []
    model: str | None = None
    if source.head.startswith(npy.MAGIC):
        requests = _requests_of_array(source, npy.read_npy(source), "the array", notes)
    elif source.head.startswith(npy.ZIP_MAGIC):
        requests = _requests_of_npz(source, npy.read_npz(source), notes)
    else:
        requests, model = _requests_of_json(source, options, notes)
    if not requests:
        raise InputFileError(source.path, "holds no routed experts (is --enable-return-routed-experts set?)")
    return _trace(source, options, requests, model, notes)


def _requests_of_array(source: Source, array: NDArray[Any], where: str, notes: list[str]) -> list[Request]:
    """[tokens, layers, K]; also [requests, tokens, layers, K], and with fewer axes one layer, one expert."""
    if array.ndim == 4:
        return [Request(f"{where}, request {i}", routes) for i, routes in enumerate(array)]
    if array.ndim < 3 and array.ndim > 0:
        notes.append(
            f"{where} has {array.ndim} axes, read as "
            + ("tokens × K" if array.ndim == 2 else "tokens, K = 1")
        )
        array = array.reshape(array.shape[0], 1, -1)
    if array.ndim != 3:
        raise InputFileError(
            source.path, f"has shape {list(array.shape)}, expected [tokens, layers, top_k]", where
        )
    return [Request(where, array)]


def _requests_of_npz(source: Source, arrays: dict[str, NDArray[Any]], notes: list[str]) -> list[Request]:
    if KEYS[0] not in arrays and KEYS[1] not in arrays:
        found = [
            request
            for name, array in arrays.items()
            for request in _requests_of_array(source, array, f"array {name!r}", notes)
        ]
        return found
    parts = [arrays[key] for key in reversed(KEYS) if key in arrays]
    return [_joined(source, "the request", parts, arrays[KEYS[1]].shape[0] if KEYS[1] in arrays else None)]


def _joined(source: Source, where: str, parts: list[NDArray[Any]], prompt_rows: int | None) -> Request:
    if any(part.ndim != 3 or part.shape[1:] != parts[0].shape[1:] for part in parts):
        shapes = " and ".join(str(list(part.shape)) for part in parts)
        raise InputFileError(source.path, f"shapes {shapes} do not fit as [tokens, layers, top_k]", where)
    return Request(where, np.concatenate(parts) if len(parts) > 1 else parts[0], prompt_rows)


def _requests_of_json(
    source: Source, options: ReadOptions, notes: list[str]
) -> tuple[list[Request], str | None]:
    requests: list[Request] = []
    model: str | None = None
    shared = 0
    for line, record in _json_records(source, options, notes):
        if not isinstance(record, dict):
            raise InputFileError(source.path, "expected a response object", f"line {line}")
        where = f"line {line}"
        if isinstance(record.get("model"), str):
            model = model or record["model"]
        prompt = _decoded(source, record.get(KEYS[1]), f"{where}, {KEYS[1]}")
        choices = record.get("choices")
        outputs = choices if isinstance(choices, list) and choices else [record]
        for index, choice in enumerate(outputs):
            if not isinstance(choice, dict):
                raise InputFileError(source.path, "expected an object", f"{where}, choice {index}")
            name = f"{where}, choice {index}" if choice is not record else where
            routes = _decoded(source, choice.get(KEYS[0]), f"{name}, {KEYS[0]}")
            parts = [part for part in (prompt if index == 0 else None, routes) if part is not None]
            if prompt is not None and index == 1:
                shared += 1
            if not parts:
                notes.append(f"{name} has no routed experts (a preempted request, say) and is left out")
                continue
            known = len(prompt) if prompt is not None and index == 0 else 0 if prompt is not None else None
            request = _joined(source, name, parts, known)
            _add_tokens(request, record, choice, alone=prompt is None)
            requests.append(request)
    if shared:
        notes.append(
            f"{shared} prompts are shared by several choices; the prompt's rows stand with the first of them"
        )
    return requests, model


def _json_records(source: Source, options: ReadOptions, notes: list[str]) -> list[tuple[int, Any]]:
    """(line, record) of JSON lines, or of one JSON document over several lines."""
    first = source.head.removeprefix(BOM).lstrip().split(b"\n", 1)[0].strip()
    if first in (b"{", b"["):  # pretty-printed
        with source.open() as stream:
            try:
                document = json.loads(stream.read().decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise InputFileError(source.path, f"not JSON: {error}") from error
        return [(1, record) for record in (document if isinstance(document, list) else [document])]
    found: list[tuple[int, Any]] = []
    skipped = 0
    for lines, records, broken in json_blocks(source, options.lenient):
        found += zip(lines, records, strict=True)
        skipped += len(broken)
    if skipped:
        notes.append(f"{skipped} unreadable lines skipped")
    if len(found) == 1 and isinstance(found[0][1], list):
        found = [(found[0][0], record) for record in found[0][1]]
    return found


def _add_tokens(request: Request, record: dict[str, Any], choice: dict[str, Any], alone: bool) -> None:
    """Token ids, and the length of the prompt where one array holds prompt and answer."""
    rows = request.routes.shape[0]
    prompt, answer = _ids(record.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    usage = record.get("usage")
    length = len(prompt) if prompt else usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if alone and isinstance(length, int) and not isinstance(length, bool):
        start = 0
        routed = choice.get(KEYS[0])
        if isinstance(routed, dict) and isinstance(routed.get("start"), int):
            start = routed["start"]
        request.prompt_rows = min(max(length - start, 0), rows)
        if start == 0 and prompt and answer and len(prompt) + len(answer) >= rows:
            request.token_ids = (prompt + answer)[:rows]
    elif not alone and prompt and answer and request.prompt_rows == len(prompt):
        ids = prompt + answer
        request.token_ids = ids[:rows] if len(ids) >= rows else None


def _ids(value: Any) -> list[int]:
    """Token ids, or nothing when the field is absent or no list of such."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 2**31 for item in value):
        return value
    return []


def _decoded(source: Source, value: Any, where: str) -> NDArray[np.integer] | None:
    """Nested lists, a base64 `.npy`, or `{"data", "shape", "dtype"}` as an array [tokens, layers, K]."""
    if value is None or value == []:
        return None
    if isinstance(value, str):
        return npy.npy_of_bytes(source, _bytes(source, value, where), where)
    if isinstance(value, dict):
        shape, kind = value.get("shape"), value.get("dtype", "int16")
        if (
            not isinstance(shape, list)
            or not all(type(n) is int and n > 0 for n in shape)
            or kind not in DTYPES
        ):
            raise InputFileError(
                source.path, f"needs a shape and an integer dtype, found {shape!r}, {kind!r}", where
            )
        data = _bytes(source, value.get("data"), where)
        if math.prod(shape) * DTYPES[kind].itemsize != len(data):
            raise InputFileError(
                source.path, f"shape {shape} of {kind} does not fit {len(data)} bytes", where
            )
        return np.frombuffer(data, DTYPES[kind]).reshape(shape)
    if not _all_whole(value):
        raise InputFileError(
            source.path, "expected ids as [tokens][layers][top_k], whole numbers only", where
        )
    try:
        array = np.array(value)
    except (ValueError, OverflowError) as error:
        raise InputFileError(source.path, f"rows of different length: {error}", where) from error
    if array.dtype.kind not in "iu" or array.ndim != 3:
        raise InputFileError(
            source.path,
            f"expected ids as [tokens][layers][top_k], found {array.dtype}, {array.ndim} axes",
            where,
        )
    return array


def _all_whole(value: Any) -> bool:
    """Whether nested lists hold whole numbers only: NumPy would turn `true` among numbers into 1."""
    level = [value]
    while level and set(map(type, level)) == {list}:
        level = list(chain.from_iterable(level))
    return set(map(type, level)) <= {int}


def _bytes(source: Source, text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InputFileError(source.path, f"not base64: {error}", where) from error


def _trace(
    source: Source, options: ReadOptions, requests: list[Request], model: str | None, notes: list[str]
) -> ExpertTrace:
    shape = requests[0].routes.shape[1:]
    for request in requests:
        if request.routes.shape[1:] != shape:
            raise InputFileError(
                source.path,
                f"{request.routes.shape[1]} layers, top-{request.routes.shape[2]}, but the first request has "
                f"{shape[0]} layers, top-{shape[1]}",
                request.where,
            )
    largest = max(int(request.routes.max()) for request in requests)
    num_experts = options.num_experts
    if num_experts is None:
        num_experts = max(largest + 1, shape[1])
        notes.append(
            f"the file does not say how many experts a layer has; {num_experts} is the largest id + 1 "
            "(give num_experts if there are more: shares of capacity depend on it)"
        )
    routes = _joined_ids(source, requests, num_experts)
    missing = _mark_missing(routes)
    used_layers = _any_real(routes, axis=(0, 2))
    real_T = _any_real(routes, axis=(1, 2))
    if not real_T.any():
        raise InputFileError(source.path, "every row is padding or missing")
    if not used_layers.all():
        dense = np.flatnonzero(~used_layers).tolist()
        notes.append(f"layers {ranges(dense)} of {shape[0]} hold no routing: dense layers, left out")
    lengths = np.array([request.routes.shape[0] for request in requests])
    owner = np.repeat(np.arange(len(requests)), lengths)
    if not real_T.all():
        notes.append(
            f"{int((~real_T).sum())} tokens were not computed (cached prefix or missing) and are left out"
        )
        owner = owner[real_T]
    kept = routes[real_T][:, used_layers] if not (real_T.all() and used_layers.all()) else routes
    if missing:
        holes = int((~(kept != PADDING).any(axis=2)).sum())
        notes.append(
            f"{missing} rows of {shape[1]} equal zeros are missing, not expert 0; {holes} remain as padding"
        )
    notes += short_rows(kept)
    known = [request.prompt_rows is not None for request in requests]
    phase = None
    if all(known):
        phase = np.concatenate(
            [np.arange(n) < (r.prompt_rows or 0) for r, n in zip(requests, lengths, strict=True)]
        )
        phase = phase[real_T]
    elif any(known):
        notes.append("only some requests say where their prompt ends; phases are not used")
    token_ids = None
    if all(request.token_ids is not None for request in requests):
        joined = [token for request in requests for token in request.token_ids or ()]
        token_ids = np.array(joined, np.int32)[real_T]
    notes.append(
        "layer ids are positions in the array; where vLLM recorded MoE layers only, that is their order"
    )
    trace = ExpertTrace(
        experts_TLK=kept,
        layer_ids_L=np.flatnonzero(used_layers).astype(np.int32),
        num_experts=num_experts,
        sequence_start_S=np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).astype(np.int64),
        model=model or "unknown",
        source=f"vLLM routed experts, {source.path.name}",
        licence="unknown",
        synthetic=False,
        is_prefill_T=phase,
        token_ids_T=token_ids,
        notes=tuple(notes),
    )
    try:
        trace.check_ids()
    except UsageError as error:
        raise InputFileError(source.path, str(error)) from error
    return trace


def _joined_ids(source: Source, requests: list[Request], num_experts: int) -> NDArray[np.integer]:
    """All requests' rows in one array of the smallest safe type, each id checked before it is narrowed."""
    total = sum(request.routes.shape[0] for request in requests)
    joined = np.empty((total, *requests[0].routes.shape[1:]), id_dtype(num_experts))
    at = 0
    for request in requests:
        for first in range(0, request.routes.shape[0], SLICE_ROWS):
            block = np.asarray(request.routes[first : first + SLICE_ROWS]).astype(np.int64)
            bad = (block < PADDING) | (block >= num_experts)
            if bad.any():
                row, layer, column = (int(i) for i in np.argwhere(bad)[0])
                value = block[row, layer, column]
                raise InputFileError(
                    source.path,
                    f"{value} is not an expert id (0 to {num_experts - 1}, or -1 for padding)"
                    + ("; ids kept in too few bits wrap to negative ones" if value < 0 else ""),
                    f"{request.where}, token {first + row}, layer {layer}, column {column}",
                )
            joined[at : at + block.shape[0]] = block
            at += block.shape[0]
    return joined


def _mark_missing(routes: NDArray[np.integer]) -> int:
    """Turn rows of K equal zeros into padding, in place; how many there were. With K = 1 they are expert 0."""
    if routes.shape[2] < 2:
        return 0
    found = 0
    for first in range(0, routes.shape[0], SLICE_ROWS):
        block = routes[first : first + SLICE_ROWS]
        zero = (block == 0).all(axis=2)
        found += int(zero.sum())
        block[zero] = PADDING
    return found


def _any_real(routes: NDArray[np.integer], axis: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.asarray((routes != PADDING).any(axis=axis))
