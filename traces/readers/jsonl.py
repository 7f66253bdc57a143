"""Generic trace JSONL: a meta line, then one line per token and layer.

    {"type": "meta", "model": "m", "num_experts": 64, "top_k": 8, "num_layers": 16}
    {"sequence": 0, "token": 0, "layer": 0, "phase": "decode", "topk_ids": [3, 1], "topk_weights": [0.7, 0.3]}

`sequence`, `phase`, `topk_weights`, `token_id` and `step` are optional, so is the meta line. Read as the same:
`req_id` for sequence, `token_idx` for token, and a `"type": "route"` on each row (what people's vLLM patches
write). `num_layers` counts the model's layers, dense ones included. The meta line may also say `source`, `licence`,
`synthetic` and `notes`.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputFileError
from ..expert_trace import MOST_EXPERTS, ExpertTrace
from .options import ReadOptions
from .records import ALIASES, RecordRows, shown
from .rows import Facts, assemble
from .source import Source
from .text import first_record, json_blocks

ROUTE = "route"


def recognises(source: Source) -> bool:
    record = first_record(source)
    if record is None:
        return False
    return record.get("type") in ("meta", ROUTE) or any(name in record for name in ALIASES["topk_ids"])


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    notes: list[str] = []
    rows = RecordRows(source, options)
    facts: Facts | None = None
    for lines, records, broken in json_blocks(source, options.lenient):
        rows.skipped += broken
        if facts is None and records:
            facts = Facts()
            if isinstance(records[0], dict) and records[0].get("type") == "meta":
                facts = meta_facts(source, records[0], f"line {lines[0]}")
                lines, records = lines[1:], records[1:]
        rows.add(lines, records)
    return assemble(source, options, facts or Facts(), rows.columns(notes), notes)


def meta_facts(source: Source, meta: dict[str, Any], where: str) -> Facts:
    """The facts of a meta object; unknown keys are left alone, known ones must have the right type."""
    facts = Facts()
    for name in ("num_experts", "top_k", "num_layers"):
        value = meta.get(name)
        if value is not None:
            if type(value) is not int or not 1 <= value <= MOST_EXPERTS:
                raise InputFileError(
                    source.path,
                    f"expected a whole number from 1 to {MOST_EXPERTS}, found {shown(value)}",
                    f"{where}, field {name!r}",
                )
            setattr(facts, name, value)
    for name in ("model", "source", "licence"):
        value = meta.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise InputFileError(
                    source.path, f"expected a text, found {shown(value)}", f"{where}, field {name!r}"
                )
            setattr(facts, name, value)
    synthetic, notes = meta.get("synthetic", False), meta.get("notes", [])
    if not isinstance(synthetic, bool):
        raise InputFileError(
            source.path, f"expected true or false, found {shown(synthetic)}", f"{where}, field 'synthetic'"
        )
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InputFileError(source.path, "expected a list of texts", f"{where}, field 'notes'")
    facts.synthetic, facts.notes = synthetic, tuple(notes)
    return facts
