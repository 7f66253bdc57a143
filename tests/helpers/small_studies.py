"""Small studies for tests, and the bytes of what a sweep leaves."""

from __future__ import annotations

from pathlib import Path

TEXT = """\
name = "small"
[traces.t]
synth = {{model = "small-olmoe-stdlib", tokens = 60, sequences = 8, prefill = 2, reuse = 0.4, skew = 0.5, seed = 1}}
[axes]
hardware = "cpu-2core"
{axes}
"""
AXES = """\
link_bytes_per_s = ["sheet", 2e9]
policy = ["lru", "least-stale", "belady-mandatory"]
prefetch = ["none", "previous"]
capacity = ["2", "10%", "50%"]
"""  # 2 experts hold no token: those scenarios fail


def write_study(folder: Path, axes: str = AXES, name: str = "study.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(TEXT.format(axes=axes))
    return path


def tables(folder: Path) -> dict[str, bytes]:
    """What must be the same however a sweep was run."""
    return {name: (folder / name).read_bytes() for name in ("rows.parquet", "sequences.parquet", "layers.parquet", "run.json")}
