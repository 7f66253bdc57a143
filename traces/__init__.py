"""Floor 1: what is replayed. Formats, readers, capture, synthesis, statistics. Knows nothing of simulation."""

from __future__ import annotations

from typing import Any

from .expert_trace import ExpertTrace
from .info import TraceInfo, trace_info
from .marginal import MarginalTrace
from .native import save_trace
from .permute import permute_steps
from .readers.registry import READERS, read_any, read_trace
from .synth import synthesise

__all__ = [
    "READERS",
    "ExpertTrace",
    "MarginalTrace",
    "TraceInfo",
    "permute_steps",
    "read_any",
    "read_trace",
    "save_trace",
    "synthesise",
    "trace_info",
]


def __getattr__(name: str) -> Any:
    if name == "capture":  # needs torch and transformers, so it is imported by who asks for it
        from .capture import capture

        return capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
