"""What a sweep stands on: its traces as files to be memory-mapped, and the content hash of every input.

Traces of other formats are converted once and synthetic ones written once, into the run's folder, so that all workers
share the pages of one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InputFileError, UsageError, unknown_name
from ..files import existing_file, sha256_of
from .study import Study, Synth, TraceInput
from .sweep_point import FIELDS, Point, scenario_hash

_NAMED = ("model", "hardware", "profile")


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace as workers open it."""

    path: str
    sha256: str
    """Of the file that the user named; of the file written, for a synthetic trace."""
    format: str | None
    model: str | None
    """Model of scenarios that name none."""


@dataclass(slots=True)
class Inputs:
    """All inputs of a study. Workers get it whole; it holds no arrays."""

    folder: str
    """Of the study file: relative paths in it begin here."""
    version: str
    traces: dict[str, TraceFile]
    """By name and repeat: `mine#0`."""
    digests: dict[str, str] = field(default_factory=dict)
    """"model:NAME", "hardware:NAME", "profile:NAME" → SHA-256 of its file."""

    def resolved(self, point: Point) -> Point:
        """The point with the trace's model where it names none, and with one way to say what is the same."""
        changes: dict[str, Any] = {}
        if point.model is None and self.trace(point).model is not None:
            changes["model"] = self.trace(point).model
        whole = {"never": "0", "unbounded": "100%"}.get(point.policy)
        if whole is not None and point.capacity != whole:
            changes["capacity"] = whole  # these two are the same at every capacity: run once
        return point.model_copy(update=changes) if changes else point

    def trace(self, point: Point) -> TraceFile:
        """The file of a point's trace; a trace that is read from a file is the same in every repeat."""
        found = self.traces.get(point.trace_key) or self.traces.get(f"{point.trace}#0")
        if found is None:
            raise unknown_name("trace", point.trace, {key.rpartition("#")[0] for key in self.traces})
        return found

    def hash_of(self, point: Point) -> str:
        """The key of a resolved point. Reads an input's file the first time it is named."""
        used = {"trace": self.trace(point).sha256}
        for kind in _NAMED:
            name = getattr(point, kind)
            if name is not None:
                used[kind] = self.digest(kind, name)
        return scenario_hash(point, used, self.version)

    def digest(self, kind: str, name: str) -> str:
        key = f"{kind}:{name}"
        if key not in self.digests:
            try:
                self.digests[key] = sha256_of(input_path(kind, name, self.folder))
            except (UsageError, OSError):
                self.digests[key] = "unknown"  # the scenario fails with the reason, and the others go on
        return self.digests[key]


def named_input(name: str, folder: str) -> str:
    """A file beside the study where there is one, else the name as it is."""
    beside = Path(folder) / name
    return str(beside) if beside.exists() else name


def input_path(kind: str, name: str, folder: str) -> Path:
    """The file behind a model, a machine or a profile. Raises `UsageError` for what is neither file nor known name."""
    from ..sim import catalog

    found = Path(named_input(name, folder))
    if found.is_dir():
        found = found / "config.json"
    if found.is_file():
        return found
    here = Path(catalog.__file__).parent
    suffix = {"model": "models/{}.json", "hardware": "hardware/{}.toml", "profile": "profiles/{}.toml"}[kind]
    known = here / suffix.format(name.lower())
    if not known.is_file():
        raise UsageError(f"unknown {kind} {name!r}")
    return known


def prepare_inputs(study: Study, folder: Path, out: Path) -> Inputs:
    """Check, write and hash the traces, and hash what the axes name. Raises `InputFileError` for a missing trace."""
    inputs = Inputs(str(folder), program_version(), {})
    axis = study.all_axes()["trace"]
    listed = study.kind == "list" and any("trace" in point for point in study.points)
    wanted = (
        study.traces if listed or not isinstance(axis, list) else {name: study.traces[name] for name in axis}
    )
    for name, trace in wanted.items():
        repeats = study.repeats if trace.synth is not None else 1
        for repeat in range(repeats):
            inputs.traces[f"{name}#{repeat}"] = _trace_file(name, trace, repeat, folder, out)
    models = {trace.model for trace in inputs.traces.values()}
    for kind in _NAMED:
        values = study.axes.get(kind)
        names = values if isinstance(values, list) else [values]
        for name in [*names, *(models if kind == "model" else [])]:
            if isinstance(name, str):
                inputs.digest(kind, name)
    return inputs


def _trace_file(name: str, trace: TraceInput, repeat: int, folder: Path, out: Path) -> TraceFile:
    if trace.synth is not None:
        target = out / "traces" / f"{_file_name(name)}-{repeat}.safetensors"
        if not target.exists():
            _synthesise(trace.synth, repeat, folder, target)
        return TraceFile(str(target.resolve()), sha256_of(target), None, trace.model or trace.synth.model)
    assert trace.path is not None
    source = existing_file(folder / trace.path)
    digest = sha256_of(source)
    if _is_mappable(source):
        return TraceFile(str(source.resolve()), digest, trace.format, trace.model)
    target = out / "traces" / f"{_file_name(name)}-{digest[:12]}.safetensors"
    if not target.exists():
        from ..traces import read_trace, save_trace

        save_trace(read_trace(source, format=trace.format), target)
    return TraceFile(str(target.resolve()), digest, None, trace.model)


def _is_mappable(source: Path) -> bool:
    """Our own format begins with eight bytes of length and a JSON object."""
    with source.open("rb") as stream:
        return stream.read(9)[8:9] == b"{"


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)


def _synthesise(synth: Synth, repeat: int, folder: Path, target: Path) -> None:
    from .trace_files import synthesise_trace

    synthesise_trace(
        target,
        model=None if synth.model is None else named_input(synth.model, str(folder)),
        num_layers=synth.layers, num_experts=synth.experts, top_k=synth.top_k, num_tokens=synth.tokens,
        num_sequences=synth.sequences, prefill_tokens=synth.prefill, reuse=synth.reuse, skew=synth.skew,
        cross_layer=synth.cross_layer, guess_recall=synth.guess_recall, lookahead=synth.lookahead,
        guesses=synth.guesses, seed=synth.seed + repeat,
    )  # fmt: skip


@cache
def program_version() -> str:
    """Version of the program and a hash of the compiled code as this process began: two engines' rows never mix."""
    from .. import __version__
    from ..sim.compiled import source_hash

    return f"{__version__}+{source_hash()}"


def check_unchanged(before: Mapping[str, Any], now: Mapping[str, Any], out: Path) -> None:
    """Refuse to go on where a study, an input or the program is another one than the run began with; say which."""
    reasons = []
    if before.get("study") != now["study"]:
        reasons.append("the study itself was edited")
    if before.get("version") != now["version"]:
        reasons.append(f"it was begun by version {before.get('version')} and this is {now['version']}")
    old, new = before.get("inputs", {}), now["inputs"]
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            was, is_now = (str(one.get(name, "absent"))[:12] for one in (old, new))
            reasons.append(f"{name} changed (SHA-256 {was} → {is_now})")
    if reasons:
        raise InputFileError(
            out,
            f"cannot be resumed: {'; '.join(reasons)}. Undo the change, or start afresh with another --out",
        )


def study_facts(study: Study, inputs: Inputs) -> dict[str, Any]:
    """What a run is of: written before it begins, compared when it is resumed."""
    hashes = {f"trace:{name}": trace.sha256 for name, trace in inputs.traces.items()} | inputs.digests
    return {
        "schema": 1, "kind": "sweep", "study": study.content_hash(), "version": inputs.version,
        "inputs": dict(sorted(hashes.items())), "fields": list(FIELDS),
    }  # fmt: skip


def folder_of(path: Path) -> Path:
    return Path(os.path.abspath(path)).parent  # noqa: PTH100 — links are kept, so that files beside a linked study are found
