"""A scenario: everything a replay is told, in one TOML file with one content hash. Unknown keys are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..errors import InputFileError, RunError, unknown_name
from ..files import read_toml, written_whole

if TYPE_CHECKING:
    from .result import ReplayResult


class Scenario(BaseModel):
    """The options of `replay`, by the same names. Paths are relative to the scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: str = Field(min_length=1)
    model: str | None = None
    hardware: str | None = None
    profile: str | None = None
    policies: tuple[str, ...] = ("least-stale", "lru")
    prefetch: tuple[str, ...] = ("none",)
    capacities: tuple[str, ...] = ("5%",)
    weights: str = "bf16"
    warm: bool = False
    train_share: float = Field(default=0.0, ge=0, lt=1)
    scope: Literal["global", "layer", "fitted"] = "global"
    contract: Literal["slots", "fused", "access"] = "slots"
    batch: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    tie_seed: int | None = Field(default=None, ge=0)
    context: int = Field(default=4096, ge=1)
    experts_home: Literal["host", "storage"] = "host"
    prefetch_budget_bytes: int | None = Field(default=None, ge=0)
    decisions: Literal["serial", "beside", "free"] = "serial"
    miss: str = "load"
    engine: Literal["numba", "simpy"] = "numba"
    format: str | None = None

    @field_validator("capacities", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """A count of experts may be written as a plain number."""
        if isinstance(value, list):
            return [str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in value]
        return value

    def content_hash(self) -> str:
        """SHA-256 over all options: equal for files that ask for the same, whatever their layout."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario. Raises `InputFileError` naming the field, its value and what would be right."""
    source, table = Path(path), read_toml(path)
    unknown = [key for key in table if key not in Scenario.model_fields]
    if unknown:
        raise InputFileError(source, str(unknown_name("key", unknown[0], Scenario.model_fields)))
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise InputFileError(source, f"{first['msg']}{got}", where=field) from error


def replay_scenario(
    path: str | Path,
    *,
    out: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ReplayResult:
    """Load a scenario file and replay it; its trace (and a model or hardware *file*) is looked up beside it."""
    from .replay import replay

    scenario = load_scenario(path)
    options = scenario.model_dump()
    folder = Path(path).resolve().parent
    options["trace"] = folder / scenario.trace
    for name in ("model", "hardware", "profile"):
        value = options[name]
        if value is not None and (folder / value).is_file():
            options[name] = folder / value
    result = replay(options.pop("trace"), **options, progress=progress)
    result.run["scenario"] = {"file": Path(path).name, "content_sha256": scenario.content_hash()}
    if out is not None:
        result.save(out)
    return result


_FIRST = """\
# A scenario for `workbench replay {name}`. Every key but `trace` may be left out.

trace = {trace}  # any known format; relative to this file
model = {model}  # `workbench model list`, or a Hugging Face config.json
hardware = {hardware}  # `workbench hardware list`, or a .toml file
# profile = "h200-sxm-sglang"  # measured kernels in place of the sheet's roofline; `workbench profile list`

policies = ["least-stale", "lru", "lfu"]  # the bounds never, unbounded and both Beladys always run too
prefetch = ["none", "gate"]  # gate:ahead=2:top=4, previous, perfect, noisy:recall=0.8:precision=0.5
capacities = ["10%", "25%", "50%"]  # share of all routed experts, bytes ("2GiB"), experts (64), or "auto"

weights = "bf16"  # format of the offloaded experts: bf16, fp8, q4, …
scope = "global"  # one pool over all layers, or "layer": a quota for each; "fitted": on what trains
contract = "slots"  # or "fused", "access"; docs/engine.md says which machine each is
# batch = 8  # sequences in lockstep; left out: the trace's own steps, or one sequence at a time
warm = false  # true: count only after the cache has filled
train_share = 0.0  # of the passes, the first ones: policies learn there and nothing is counted
experts_home = "host"  # or "storage": behind the host
miss = "load"  # or host, lower, substitute, skip: the last three change the model's output
decisions = "serial"  # what deciding costs is in series with the step, "beside" it, or "free"
seed = 0
"""


def write_first_scenario(path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a commented scenario that runs on the bundled trace. Refuses to replace a file unless told to."""
    from ..traces.bundled import bundled_trace_path

    target = Path(path)
    if target.exists() and not overwrite:
        raise RunError(f"{target} exists already: choose another name, or remove it")
    text = _FIRST.format(
        name=target.name,
        trace=json.dumps(str(bundled_trace_path()), ensure_ascii=False),
        model=json.dumps("small-olmoe-stdlib"),
        hardware=json.dumps("cpu-2core"),
    )
    with written_whole(target) as part:
        part.write_text(text, encoding="utf-8")
    return target
