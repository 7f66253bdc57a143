"""Hit rate against capacity, for a whole trace at once: the study `curve`.

Under contract `access` a trace is one sequence of accesses, and policies with the inclusion property (LRU, the Belady that
must admit, a static set) give the misses at *every* capacity from one pass over it; FIFO, CLOCK and LFU are counted
capacity by capacity. No machine, no prefetch, no times: a quick look at how much memory a trace wants, and a check of what
`replay --contract access` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.blocks import BlockSource
from ..sim.curves import COUNTED, CURVES, misses_at
from ..sim.engines.survey import access_sequence, survey
from ..sim.passes import build_passes
from .cases import cache_sizes
from .trace_files import loaded_trace
from .units import parse_capacities

if TYPE_CHECKING:
    import pandas as pd

    from ..traces.expert_trace import ExpertTrace

POLICIES = (*CURVES, *COUNTED)
_POINTS = 16  # capacities where none are named
_ASKED = (0.5, 0.9)  # hit rates whose capacity the last line names


@dataclass(frozen=True, slots=True, eq=False)
class CurveResult:
    """Misses of each policy at each capacity. C capacities."""

    capacities_C: NDArray[np.int64]
    """Experts, ascending."""
    misses: dict[str, NDArray[np.int64]]
    """Policy → [C]."""
    accesses: int
    num_experts: int
    """All routed experts of the trace's layers."""
    facts: dict[str, Any]
    """What a hit rate must stand beside: contract, order, scope, batch, shape, trace."""
    warnings: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row a capacity: experts, share of all, and each policy's hit rate (hits ÷ accesses)."""
        import pandas as pd

        rates = {name: 1 - misses / self.accesses for name, misses in self.misses.items()}
        return pd.DataFrame(
            {"capacity_experts": self.capacities_C, "share": self.capacities_C / self.num_experts, **rates}
        )

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"policy": name, "capacity_experts": int(capacity), "misses": int(missed), "hits": self.accesses - int(missed)}
            for name, misses in self.misses.items()
            for capacity, missed in zip(self.capacities_C, misses, strict=True)
        ]
        return {"rows": rows, "accesses": self.accesses, "experts": self.num_experts, "reporting": self.facts}

    def lines(self) -> list[str]:
        """What it means, and what it must be read with."""
        found = []
        for name, misses in self.misses.items():
            enough = [self._first_at(misses, rate) for rate in _ASKED]
            told = [f"{rate:.0%} at {size}" for rate, size in zip(_ASKED, enough, strict=True) if size is not None]
            found.append(f"  {name}: " + (", ".join(told) if told else "none of the two"))
        facts = self.facts
        return [
            "the first of these capacities with a hit rate of 50% and of 90%:",
            *found,
            f"contract {facts['contract']}, {facts['order']}; one pool; {facts['passes']}; no prefetch, no times",
            f"hit rate is hits ÷ accesses: {self.accesses:,} accesses of {self.num_experts:,} experts, top-{facts['top_k']}"
            + ("; the static set is fitted on this trace, its first load is no miss" if "static" in self.misses else ""),
        ]

    def _first_at(self, misses: NDArray[np.int64], rate: float) -> str | None:
        enough = np.flatnonzero(1 - misses / self.accesses >= rate)
        return None if not len(enough) else f"{self.capacities_C[enough[0]] / self.num_experts:.1%}"


def curve(
    trace: ExpertTrace | str | Path,
    *,
    policies: Sequence[str] = CURVES,
    capacities: Sequence[str] | None = None,
    batch: int | None = None,
    format: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> CurveResult:
    """Hit rates of some policies over capacities of one pool, under contract `access`.

    `capacities` are written as for `replay` (shares or experts); without them, about sixteen from one token's top-k to all
    experts. Raises `UsageError` for a policy without a curve, `InputFileError` for a trace that cannot be read.
    """
    unknown = [name for name in policies if name not in POLICIES]
    if unknown or not policies:
        raise UsageError(
            f"no curve for policy {', '.join(map(repr, unknown)) or '(none given)'}: known are {', '.join(POLICIES)}; "
            "workbench replay runs every policy at the capacities it is given"
        )
    found, _ = loaded_trace(trace, format)
    source = BlockSource(found, build_passes(found, batch))
    everything = found.num_layers * found.num_experts
    sizes, warnings = _sizes(capacities, found, everything)
    total = len(policies) + 1
    if progress is not None:
        progress(0, total, "reading")
    accesses = survey(source).accesses
    ids = access_sequence(source, accesses)
    misses = {}
    for done, name in enumerate(dict.fromkeys(policies), start=1):
        if progress is not None:
            progress(done, total, name)
        misses[name] = misses_at(name, ids, everything, sizes.tolist())
    return CurveResult(
        sizes, misses, accesses, everything,
        {
            "contract": "access", "order": "as written in the trace", "scope": "global",
            "passes": source.passes.scheduling, "layers": found.num_layers, "experts_a_layer": found.num_experts,
            "top_k": found.top_k, "trace": found.model, "synthetic": found.synthetic,
        },
        (*warnings, *found.notes),
    )  # fmt: skip


def _sizes(
    labels: Sequence[str] | None, trace: ExpertTrace, everything: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if labels is None:
        drawn = np.geomspace(min(trace.top_k, everything), everything, _POINTS)
        return np.unique(np.rint(drawn).astype(np.int64)), ()
    for asked in parse_capacities(labels):
        if asked.kind in ("bytes", "auto"):
            raise UsageError(
                f"capacity {asked.label}: a curve is over shares of all experts (5%) or counts (64); bytes and auto need a "
                "model, see workbench replay"
            )
    sizes, warnings = cache_sizes(
        labels, num_layers=trace.num_layers, num_experts=trace.num_experts, top_k=trace.top_k, scope="global",
        contract="access", expert_bytes=None, auto_experts=None,
    )  # fmt: skip
    return np.array([size.experts for size in sizes], np.int64), warnings
