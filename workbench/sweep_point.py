"""One scenario of a study: every choice by name, small enough to be made by the million, with a hash that is its key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SCHEMA = 3
"""Of rows and hashes: a change of what a row means makes every scenario a new one."""


class Point(BaseModel):
    """One scenario. The names are those of `replay`, in the singular where `replay` takes a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: str = Field(min_length=1)
    """Name of a trace of the study."""
    model: str | None = None
    """None: the model that the trace's entry names."""
    hardware: str | None = None
    profile: str | None = None
    link_bytes_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bandwidth of the link from host to device in place of the sheet's; None: the sheet's."""
    capacity: str = "5%"
    policy: str = "lru"
    prefetch: str = "none"
    miss: str = "load"
    weights: str = "bf16"
    scope: Literal["global", "layer", "fitted"] = "global"
    contract: Literal["slots", "fused", "access"] = "slots"
    batch: int | None = Field(default=None, ge=1)
    context: int = Field(default=4096, ge=1)
    experts_home: Literal["host", "storage"] = "host"
    prefetch_budget_bytes: int | None = Field(default=None, ge=0)
    decisions: Literal["serial", "beside", "free"] = "serial"
    decision_ns: int | None = Field(default=None, ge=0)
    """What deciding costs an event in place of the measured cost; None: as measured."""
    warm: bool = False
    train_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the passes, the first ones, in which policies learn and nothing is counted."""
    engine: Literal["numba", "simpy"] = "numba"
    seed: int = Field(default=0, ge=0)
    tie_seed: int | None = Field(default=None, ge=0)
    repeat: int = Field(default=0, ge=0)
    """Number of the repeat: it adds to `seed`, and a synthesised trace is drawn anew for it."""

    @field_validator("capacity", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """A count of experts may be written as a plain number."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @property
    def trace_key(self) -> str:
        """Name of the trace and the repeat it is drawn for."""
        return f"{self.trace}#{self.repeat}"


FIELDS = tuple(Point.model_fields)
SETTING = (
    "trace", "model", "hardware", "profile", "link_bytes_per_s", "weights", "contract", "batch", "context",
    "experts_home", "decisions", "decision_ns", "warm", "train_share",
)  # fmt: skip
"""What a user cannot choose or what changes the question: rows are compared only where these agree."""
CHOICE = ("policy", "prefetch", "miss", "capacity", "scope", "prefetch_budget_bytes")
"""What a sweep chooses between."""


def scenario_hash(point: Point, inputs: Mapping[str, str], version: str) -> str:
    """32 hex digits over configuration (repeat included), contents of every input, and version of the program."""
    facts = {"point": point.model_dump(), "inputs": dict(inputs), "version": version, "schema": SCHEMA}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
