"""From records (a dict per row) to `Columns`: field names and their aliases, types, and what is wrong with a row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ...errors import InputFileError
from ..expert_trace import MOST_EXPERTS
from .options import ReadOptions
from .rows import PHASES, UNSAID, Columns
from .source import Source

ALIASES = {
    "sequence": ("sequence", "req_id", "request_id", "seq_id"),
    "token": ("token", "token_idx", "token_position"),
    "layer": ("layer", "layer_id", "layer_idx"),
    "phase": ("phase",),
    "topk_ids": ("topk_ids", "selected_experts"),
    "topk_weights": ("topk_weights", "selected_probabilities"),
    "token_id": ("token_id",),
    "step": ("step", "step_id"),
}
"""Our name of each column, and the names it is read under (what people's vLLM patches and moe-cache-lab write)."""
REQUIRED = ("token", "layer", "topk_ids")
LARGEST = {"token": 2**53, "layer": MOST_EXPERTS - 1, "token_id": 2**31 - 1, "step": 2**53, "sequence": 2**53}
MOST_WEIGHT = 3.4e38  # weights are kept in 32 bits


def find_names(present: Callable[[str], bool]) -> dict[str, str]:
    """Our name → the file's name, for every column that `present` knows."""
    return {
        ours: next(name for name in names if present(name))
        for ours, names in ALIASES.items()
        if any(present(name) for name in names)
    }


class RecordRows:
    """Collects records block by block. A block of good records is checked in whole-column steps; only a block
    that fails is looked at record by record, to name the line and the field."""

    def __init__(self, source: Source, options: ReadOptions, place: str = "line") -> None:
        self.source, self.options, self.place = source, options, place
        self.skipped: list[int] = []
        self._codes: dict[Hashable, int] = {}
        self._blocks: list[dict[str, Any]] = []
        self._names: dict[str, str] = {}
        self._with_sequence: bool | None = None

    def add(self, lines: Sequence[int], records: Sequence[Any]) -> None:
        if not records:
            return
        present = set(chain.from_iterable(record for record in records if isinstance(record, dict)))
        self._names = find_names(present.__contains__)
        if self._with_sequence is None:
            self._with_sequence = "sequence" in self._names
        try:
            self._append(lines, records)
        except (_UnfitError, TypeError, KeyError, AttributeError, ValueError, OverflowError):
            good = [pair for pair in zip(lines, records, strict=True) if self._is_good(*pair)]
            if good:
                self._append([line for line, _ in good], [record for _, record in good])

    def _is_good(self, line: int, record: Any) -> bool:
        problem = self._problem(record)
        if problem is None:
            return True
        if not self.options.lenient:
            where, what = problem
            raise InputFileError(self.source.path, what, f"{self.place} {line}{where}")
        self.skipped.append(line)
        return False

    def _problem(self, record: Any) -> tuple[str, str] | None:
        if not isinstance(record, dict):
            return "", f"expected an object, found {shown(record)}"
        for ours in ALIASES:
            name = self._names.get(ours, ours)
            if name not in record:
                if ours in REQUIRED or (ours == "sequence" and self._with_sequence):
                    return (
                        f", field {name!r}",
                        f"is missing; the row has {shown(', '.join(map(str, record)) or 'nothing')}",
                    )
                continue
            if ours == "sequence" and not self._with_sequence:
                return f", field {name!r}", "is given here, but the rows before give no sequence"
            what = _field_problem(ours, record[name])
            if what:
                return f", field {name!r}", what
        weights = record.get(self._names.get("topk_weights", ""))
        ids = record[self._names["topk_ids"]] if "topk_ids" in self._names else []
        if weights and len(weights) != len(ids):  # [] means none, as moe-cache-lab writes it
            return (
                f", field {self._names['topk_weights']!r}",
                f"{len(weights)} weights for {len(ids)} experts",
            )
        return None

    def _append(self, lines: Sequence[int], records: Sequence[Any]) -> None:
        names = self._names
        block: dict[str, Any] = {"line": np.asarray(lines, np.int64)}
        for ours in ("token", "layer"):
            block[ours] = _whole([record[names[ours]] for record in records], 0, LARGEST[ours])
        ids = [record[names["topk_ids"]] for record in records]
        if set(map(type, ids)) != {list}:
            raise _UnfitError
        block["counts"] = np.fromiter(map(len, ids), np.int64, len(ids))
        block["ids"] = _whole(list(chain.from_iterable(ids)), -MOST_EXPERTS, MOST_EXPERTS).astype(np.int32)
        if "topk_weights" in names:
            weights = [record.get(names["topk_weights"]) for record in records]
            block["weights"] = self._weights(weights, block["counts"])
        if self._with_sequence:
            labels = [record[names["sequence"]] for record in records]
        elif "sequence" in names:
            raise _UnfitError
        else:
            labels = [0] * len(ids)
        if not set(map(type, labels)) <= {int, str}:
            raise _UnfitError
        if any(type(label) is int and abs(label) > LARGEST["sequence"] for label in set(labels)):
            raise _UnfitError
        if "phase" in names:
            phases = [record.get(names["phase"]) for record in records]
            block["phase"] = np.array([UNSAID if p is None else PHASES[p] for p in phases], np.int8)
        for ours in ("token_id", "step"):
            if ours in names:
                values = [record.get(names[ours]) for record in records]
                if UNSAID in values:
                    raise _UnfitError
                block[ours] = _whole([UNSAID if v is None else v for v in values], UNSAID, LARGEST[ours])
        codes = self._codes
        block["sequence"] = np.array([codes.setdefault(label, len(codes)) for label in labels], np.int64)
        self._blocks.append(block)

    @staticmethod
    def _weights(weights: list[Any], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Flat weights, `ABSENT` for rows that give none (an empty list or nothing)."""
        if not set(map(type, weights)) <= {list, type(None)}:
            raise _UnfitError
        given = list(chain.from_iterable(row for row in weights if row))
        if (
            not set(map(type, given)) <= {int, float}
            or not (np.abs(np.array(given, np.float64)) <= MOST_WEIGHT).all()
        ):
            raise _UnfitError
        flat: list[float] = []
        for row, count in zip(weights, counts.tolist(), strict=True):
            if row and len(row) != count:
                raise _UnfitError
            flat.extend(row or [ABSENT] * count)
        return np.array(flat, np.float32)

    def columns(self, notes: list[str]) -> Columns:
        """All rows so far. Weights, token ids or steps that only some rows have are dropped, which is noted."""
        if self.skipped:
            first = ", ".join(map(str, sorted(self.skipped)[:5])) + (" …" if len(self.skipped) > 5 else "")
            notes.append(f"{len(self.skipped)} unreadable rows skipped ({self.place} {first})")
        if not self._blocks:
            raise InputFileError(self.source.path, "holds no routing rows")
        joined = {name: self._join(name) for name in ("line", "token", "layer", "counts", "ids", "sequence")}
        joined |= {
            name: self._join(name)
            for name in ("weights", "phase", "token_id", "step")
            if any(name in block for block in self._blocks)
        }
        self._blocks = []
        weights = joined.get("weights")
        if weights is not None:
            absent = np.isneginf(weights)
            if absent.any():
                if not absent.all():
                    notes.append("only some rows give weights; weights are not used")
                weights = None
        for name in ("token_id", "step"):
            if name in joined and (joined[name] < 0).any():
                if (joined[name] >= 0).any():
                    notes.append(f"only some rows give {name}; it is not used")
                del joined[name]
        names, sequence = list(self._codes), joined["sequence"]
        if all(isinstance(name, int) for name in names):
            by_number = np.argsort(np.array(names, np.int64))
            names, sequence = [names[i] for i in by_number], np.argsort(by_number)[sequence]
        return Columns(
            place=self.place,
            line_R=joined["line"],
            sequence_R=sequence,
            token_R=joined["token"],
            layer_R=joined["layer"],
            counts_R=joined["counts"],
            ids=joined["ids"],
            weights=weights,
            phase_R=joined.get("phase"),
            token_id_R=joined.get("token_id"),
            step_R=joined.get("step"),
            sequence_names=names,
        )

    def _join(self, name: str) -> np.ndarray[Any, Any]:
        """A column of all blocks; blocks without it count as not saying."""
        parts = []
        for block in self._blocks:
            if name in block:
                parts.append(block[name])
            elif name == "weights":
                parts.append(np.full(block["ids"].size, ABSENT, np.float32))
            else:
                parts.append(np.full(block["line"].size, UNSAID, np.int64))
        return np.concatenate(parts)


class _UnfitError(Exception):
    """A block holds a value of the wrong type or range."""


ABSENT = float("-inf")


def _whole(values: list[Any], least: int, most: int) -> np.ndarray[Any, Any]:
    """An int64 array of `values`, which must be whole numbers (no truth values, no 12.0) from `least` to `most`."""
    if not set(map(type, values)) <= {int}:
        raise _UnfitError
    array = np.array(values, np.int64)
    if array.size and (array.min() < least or array.max() > most):
        raise _UnfitError
    return array


def _field_problem(ours: str, value: Any) -> str | None:
    """What is wrong with one value, or None. The slow twin of the checks in `_append`."""
    if ours in ("token", "layer", "token_id", "step"):
        if value is None and ours in ("token_id", "step"):
            return None
        if type(value) is not int or not 0 <= value <= LARGEST[ours]:
            return f"expected a whole number from 0 to {LARGEST[ours]}, found {shown(value)}"
    elif ours == "topk_ids":
        if type(value) is not list or any(
            type(item) is not int or abs(item) > MOST_EXPERTS for item in value
        ):
            return f"expected a list of expert ids, found {shown(value)}"
    elif ours == "topk_weights":
        if value is not None and (
            type(value) is not list
            or any(type(item) not in (int, float) or not abs(item) <= MOST_WEIGHT for item in value)
        ):
            return f"expected a list of finite weights, found {shown(value)}"
    elif ours == "sequence":
        if type(value) not in (int, str) or (isinstance(value, int) and abs(value) > LARGEST["sequence"]):
            return f"expected a number or a name, found {shown(value)}"
    elif value is not None and (type(value) is not str or value not in PHASES):
        return f"expected one of {', '.join(PHASES)}, found {shown(value)}"
    return None


def shown(value: Any) -> str:
    """A value as an error message quotes it: at most 60 characters, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"
