"""Lines and JSON records of a text file, with the number of the line they stand on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...errors import InputFileError
from .source import Source

LONGEST_LINE_BYTES = 1 << 28  # one vLLM response of 100,000 tokens as nested lists is about that long
BLOCK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"


def line_blocks(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """Blocks of lines of about a megabyte, each with its first line's number; BOM and line ends stripped.

    A byte-order mark is no part of the first name, and CRLF leaves no `\\r` (case B01).
    """
    with source.open() as stream:
        number, block, size = 1, list[bytes](), 0
        while line := stream.readline(LONGEST_LINE_BYTES + 1):
            if len(line) > LONGEST_LINE_BYTES:
                raise InputFileError(
                    source.path, f"longer than {LONGEST_LINE_BYTES} bytes", f"line {number + len(block)}"
                )
            if number == 1 and not block and line.startswith(BOM):
                line = line[len(BOM) :]
            block.append(line.rstrip(b"\r\n"))
            size += len(line)
            if size >= BLOCK_BYTES:
                yield number, block
                number, block, size = number + len(block), [], 0
        if block:
            yield number, block


def json_blocks(source: Source, lenient: bool) -> Iterator[tuple[list[int], list[Any], list[int]]]:
    """Line numbers and records of each block of JSON lines, and the lines that are no JSON (only when lenient).

    Blank lines are skipped. Raises `InputFileError` with line, column and the text found.
    """
    for first, lines in line_blocks(source):
        kept = [number for number, line in enumerate(lines, first) if line and not line.isspace()]
        text = [lines[number - first] for number in kept]
        try:
            # One call for the whole block, with a 0 between the lines: a line that holds two records, or closes a
            # bracket of the line before it, moves a 0 from its place.
            mixed = json.loads(b"[" + b",0,".join(text) + b"]")
            if (
                len(mixed) == 2 * len(kept) - 1
                and not any(mixed[1::2])
                and set(map(type, mixed[1::2])) <= {int}
            ):
                yield kept, mixed[::2], []
                continue
        except (ValueError, RecursionError):
            pass
        yield _one_by_one(source, kept, text, lenient)


def _one_by_one(
    source: Source, numbers: list[int], lines: list[bytes], lenient: bool
) -> tuple[list[int], list[Any], list[int]]:
    kept, records, broken = list[int](), list[Any](), list[int]()
    for number, line in zip(numbers, lines, strict=True):
        try:
            records.append(json_of(source, number, line))
            kept.append(number)
        except InputFileError:
            if not lenient:
                raise
            broken.append(number)
    return kept, records, broken


def json_of(source: Source, number: int, line: bytes) -> Any:
    """The JSON value of one line; `InputFileError` with line, column and the text found."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputFileError(
            source.path, f"not UTF-8 text (byte {line[error.start : error.start + 1]!r})", f"line {number}"
        ) from error
    except json.JSONDecodeError as error:
        found = error.doc[error.pos : error.pos + 20]
        raise InputFileError(
            source.path,
            f"not JSON: {error.msg}, found {found!r}"
            if found
            else f"not JSON: {error.msg}; is the line cut off?",
            f"line {number}, column {error.pos + 1}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputFileError(source.path, f"not JSON: {error}", f"line {number}") from error


def first_record(source: Source) -> dict[str, Any] | None:
    """The first line as a JSON object, for telling formats apart; None when it is none or is cut by the head."""
    line = source.head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
