"""Generic trace CSV: a header, then one row per token and layer, with the columns of the generic JSONL.

    sequence,token,layer,phase,topk_ids,topk_weights
    0,0,0,decode,"[3, 1]","[0.7, 0.3]"

A list is a quoted JSON list (`"[3, 1]"`) or separated by spaces or semicolons (`3 1`, `3;1`); commas without
brackets are refused, because `1,5` may be a decimal. What JSONL says in its meta line may stand in a first line
that begins with `#`: `# {"type": "meta", "num_experts": 64}`. Empty cells are allowed only in optional columns.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import InputFileError
from ..expert_trace import ExpertTrace
from .jsonl import meta_facts
from .options import ReadOptions
from .records import REQUIRED, RecordRows, find_names, shown
from .rows import Facts, assemble
from .source import Source
from .text import BOM, json_of, line_blocks

BLOCK_ROWS = 8192
WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
OPTIONAL = ("sequence", "phase", "topk_weights", "token_id", "step")


def recognises(source: Source) -> bool:
    """The first line that is no comment names at least token, layer and the ids."""
    for line in source.head.removeprefix(BOM).splitlines():
        if not line.startswith(b"#"):
            try:
                header = next(csv.reader([line.decode("utf-8")]), [])
            except (UnicodeDecodeError, csv.Error):
                return False
            return all(
                ours in find_names([name.strip() for name in header].__contains__) for ours in REQUIRED
            )
    return False


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    notes: list[str] = []
    facts, first, lines = _comments(source)
    table = csv.reader(lines, strict=True)
    rows = RecordRows(source, options)
    try:
        header = [name.strip() for name in next(table, [])]
        names = find_names(header.__contains__)
        missing = [ours for ours in REQUIRED if ours not in names]
        if missing or len(set(header)) < len(header):
            what = f"lacks {', '.join(missing)}" if missing else "names a column twice"
            raise InputFileError(source.path, f"the header {what}: {', '.join(header)}", f"line {first}")
        convert = {name: _LIST if ours.startswith("topk") else _PLAIN[ours] for ours, name in names.items()}
        optional = {name for ours, name in names.items() if ours in OPTIONAL}
        numbers, records = list[int](), list[dict[str, Any]]()
        for cells in table:
            line = first + table.line_num - 1
            if not cells:
                continue
            try:
                records.append(_record(source, line, header, cells, convert, optional))
                numbers.append(line)
            except InputFileError:
                if not options.lenient:
                    raise
                rows.skipped.append(line)
            if len(records) == BLOCK_ROWS:
                rows.add(numbers, records)
                numbers, records = [], []
        rows.add(numbers, records)
    except csv.Error as error:
        raise InputFileError(
            source.path, f"not CSV: {error}", f"line {first + table.line_num - 1}"
        ) from error
    return assemble(source, options, facts, rows.columns(notes), notes)


def _comments(source: Source) -> tuple[Facts, int, Iterator[str]]:
    """Facts from `#` lines at the top, the number of the first other line, and the lines from there on."""
    lines = _lines(source)
    facts, number = Facts(), 0
    for line in lines:
        number += 1
        if not line.startswith("#"):
            break
        text = line[1:].strip()
        if text.startswith("{"):
            meta = json_of(source, number, text.encode())
            facts = meta_facts(source, meta, f"line {number}")
    else:
        return facts, number, iter(())

    def rest() -> Iterator[str]:
        yield line
        yield from lines

    return facts, number, rest()


def _lines(source: Source) -> Iterator[str]:
    for first, block in line_blocks(source):
        for number, raw in enumerate(block, first):
            try:
                yield raw.decode("utf-8") + "\n"
            except UnicodeDecodeError as error:
                raise InputFileError(
                    source.path,
                    f"not UTF-8 text (byte {raw[error.start : error.start + 1]!r})",
                    f"line {number}",
                ) from error


def _record(
    source: Source,
    line: int,
    header: list[str],
    cells: list[str],
    convert: dict[str, Callable[[str], Any]],
    optional: set[str],
) -> dict[str, Any]:
    if len(cells) != len(header):
        raise InputFileError(source.path, f"{len(cells)} cells, the header has {len(header)}", f"line {line}")
    record: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        if name not in convert:
            continue
        text = cell.strip()
        if not text and name in optional:
            record[name] = None
            continue
        try:
            record[name] = convert[name](text)
        except (ValueError, RecursionError):
            expected = "a list of numbers" if convert[name] is _LIST else "a whole number"
            raise InputFileError(
                source.path, f"expected {expected}, found {shown(cell)}", f"line {line}, column {name!r}"
            ) from None
    return record


def _int(text: str) -> int:
    if not WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _name(text: str) -> int | str:
    """A number only where it is written as one: `007` and `7` may be two requests."""
    return int(text) if re.fullmatch("0|-?[1-9][0-9]{0,15}", text, re.ASCII) else text


def _list(text: str) -> list[Any]:
    if text.startswith("["):
        value = json.loads(text)
    else:
        value = [
            _int(part) if WHOLE.fullmatch(part) else float(part) for part in text.replace(";", " ").split()
        ]
    if not isinstance(value, list):
        raise ValueError(text)
    return value


_LIST: Callable[[str], Any] = _list
_PLAIN: dict[str, Callable[[str], Any]] = {
    "token": _int, "layer": _int, "token_id": _int, "step": _int, "sequence": _name, "phase": str,
}  # fmt: skip
