"""Routing JSONL of moe-cache-lab, version 1: one independent decoder sequence a file.

Form: `TRACE_FORMAT.md` and `examples/trace-validation-fixtures/valid/v1-minimal.jsonl` in birkansit/moe-cache-lab
(commits 0e94d10cd7f6, bf796de12b28; read 2026). A `metadata` record (`format`, `format_version`, `model_id`,
optional `num_experts`, `experts_per_token`, …), then `routing_selection` records (`layer`, `phase` prompt or
generated, `token_position`, `token_id`, `selected_experts`, `selected_probabilities`, possibly empty), prompt
records layer by layer, generated ones token by token. Version 2 (encoder and decoder apart) is refused: two
expert namespaces do not fit one trace.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputFileError
from ..expert_trace import MOST_EXPERTS, ExpertTrace
from .options import ReadOptions
from .records import RecordRows, shown
from .rows import Facts, assemble
from .source import Source
from .text import first_record, json_blocks

FORMAT = "moe-cache-lab.routing-jsonl"


def recognises(source: Source) -> bool:
    record = first_record(source)
    return record is not None and (record.get("format") == FORMAT or record.get("record_type") == "metadata")


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    notes: list[str] = []
    rows = RecordRows(source, options)
    facts: Facts | None = None
    for lines, records, broken in json_blocks(source, options.lenient):
        rows.skipped += broken
        if facts is None and records:
            facts = _facts(source, records[0], lines[0])
            lines, records = lines[1:], records[1:]
        for line, record in zip(lines, records, strict=True):
            kind = record.get("record_type") if isinstance(record, dict) else None
            if kind != "routing_selection":
                raise InputFileError(
                    source.path,
                    f"expected a routing_selection record, found record_type {shown(kind)}",
                    f"line {line}",
                )
        rows.add(lines, records)
    if facts is None:
        raise InputFileError(source.path, "holds no metadata record")
    return assemble(source, options, facts, rows.columns(notes), notes)


def _facts(source: Source, record: Any, line: int) -> Facts:
    where = f"line {line}"
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else record
        raise InputFileError(source.path, f"expected format {FORMAT!r}, found {shown(found)}", where)
    version = record.get("format_version", 1)
    if version != 1:
        raise InputFileError(
            source.path,
            f"format_version {shown(version)}; only version 1 is read (2 keeps encoder and decoder experts apart)",
            where,
        )
    facts = Facts(source=f"moe-cache-lab routing trace {source.path.name}")
    facts.model = record["model_id"] if isinstance(record.get("model_id"), str) else None
    for ours, name in (("num_experts", "num_experts"), ("top_k", "experts_per_token")):
        value = record.get(name)
        if value is not None:
            if type(value) is not int or not 1 <= value <= MOST_EXPERTS:
                raise InputFileError(
                    source.path,
                    f"expected a whole number from 1 to {MOST_EXPERTS}, found {shown(value)}",
                    f"{where}, field {name!r}",
                )
            setattr(facts, ours, value)
    method = record.get("capture_method")
    facts.synthetic = isinstance(method, str) and "synthetic" in method.lower()
    if isinstance(method, str):
        facts.notes = (f"capture method: {method}",)
    return facts
