"""Running a group's cases for real, interleaved, and keeping what a comparison needs of each run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..sim.blocks import BlockSource
from ..sim.cache.ledger import Ledger
from ..sim.cache.registry import policy
from ..sim.engines.run import Setup
from ..sim.engines.survey import survey
from ..sim.passes import Passes, build_passes
from ..sim.prefetch.registry import prefetcher
from ..sim.request_times import request_times
from .timeline import shown_passes
from .validate_cases import Case, Group
from .validate_segments import Segment, measured_segments

if TYPE_CHECKING:
    from ..kernels.runtime.loop import Runtime
    from ..kernels.runtime.record import RunRecord

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A case with all that both a real and a simulated run of it need."""

    group: Group
    case: Case
    passes: Passes
    source: BlockSource
    setup: Setup

    @property
    def name(self) -> str:
        prefetch = "" if self.case.prefetch == "none" else f" + {self.case.prefetch}"
        return f"{self.group.name}: {self.case.policy}{prefetch} at {self.case.experts} experts"


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What is kept of one real run."""

    tpot_s: float | None
    ttft_s: float | None
    makespan_s: float
    event_ns: NDArray[np.int64]
    """[P, L] from the end of the event before to the end of this one."""
    part_ns: NDArray[np.int64]
    """[6, P, L], see `kernels.runtime.record`."""
    expert_tokens_M: NDArray[np.int64]
    expert_ns_M: NDArray[np.int64]
    copy_ns: NDArray[np.int64]
    """Of each copy: from when it was asked for, or the one before it landed, until it landed."""
    shares: dict[str, float]
    overlap: float | None
    late: int


@dataclass(slots=True, eq=False)
class Measured:
    """All repeats of one case, and the decisions, which are the same in all of them."""

    prepared: Prepared
    samples: list[Sample] = field(default_factory=list)
    ledger: Ledger | None = None
    layer_counts: NDArray[np.int64] | None = None
    shown: tuple[int, ...] = ()
    """Passes whose segments are kept of every repeat."""
    recorded: list[list[Segment]] = field(default_factory=list)
    """Of each repeat: those segments."""
    ledgers_repeat: bool = True
    """Every repeat counted the same, apart from what is late."""


def prepare(group: Group, case: Case, row_bytes: int) -> Prepared:
    """Raises `UsageError` where the trace lacks what the prefetcher needs, as a replay would."""
    trace = group.traces[case.purpose]
    ahead = prefetcher(case.prefetch)
    passes = build_passes(trace, group.batch)
    source = BlockSource(
        trace, passes, with_previous=ahead.needs == "previous", with_predicted=ahead.needs == "predicted"
    )
    setup = Setup(
        policy(case.policy), np.array([case.experts * row_bytes], np.int64), prefetch=ahead,
        size_per_layer=np.full(trace.num_layers, row_bytes, np.int64),
    )  # fmt: skip
    return Prepared(group, case, passes, source, setup)


@contextmanager
def runtimes(
    groups: Sequence[Group], *, folder: str | Path | None, limit_s: float, seed: int
) -> Iterator[list[Runtime]]:
    """A runtime for each group, each with its tier; all tiers are closed and their files removed at the end."""
    from ..kernels.runtime.file_tier import FileTier
    from ..kernels.runtime.loop import Runtime
    from ..kernels.runtime.tiers import HostTier, PacedTier, Tier
    from ..kernels.runtime.weights import random_weights

    with _ended_orderly(), ExitStack() as stack:
        made = []
        for group in groups:
            weights = random_weights(group.model, dtype=group.dtype, seed=seed)
            link = group.link
            tier: Tier
            if link.tier == "file":
                tier = FileTier(weights, folder)
            elif link.tier == "host":
                tier = HostTier(weights)
            else:
                tier = PacedTier(weights, bytes_per_s=link.bytes_per_s, latency_s=link.latency_s)
            made.append(stack.enter_context(Runtime(group.model, weights, tier, limit_s=limit_s)))
        yield made


@contextmanager
def _ended_orderly() -> Iterator[None]:
    """A request to end (SIGTERM) leaves through the usual way, so that tiers remove their files."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # 128 + 15, as shells report it
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_rounds(
    groups: Sequence[Group],
    *,
    repeats: int,
    folder: str | Path | None = None,
    limit_s: float = 30.0,
    seed: int = 0,
    timeline: bool = False,
    progress: Progress | None = None,
) -> list[Measured]:
    """One warm-up of every case, then `repeats` rounds in which each case runs once: whatever slows the machine for a
    while slows calibration and judged runs alike. `timeline` keeps segments of a few passes of the judged cases."""
    with runtimes(groups, folder=folder, limit_s=limit_s, seed=seed) as made:
        work = [
            (runtime, Measured(prepare(group, case, runtime.weights.shape.row_bytes)))
            for group, runtime in zip(groups, made, strict=True)
            for case in group.cases
        ]
        for _, measured in work if timeline else ():
            prepared = measured.prepared
            if prepared.case.purpose == "judged":
                measured.shown = tuple(shown_passes(survey(prepared.source), prepared.passes))
        total, done = (repeats + 1) * len(work), 0
        for number in range(repeats + 1):
            for runtime, measured in work:
                if progress is not None:
                    progress(done, total, measured.prepared.name)
                record = runtime.run(measured.prepared.source, measured.prepared.setup, seed=seed)
                _keep(measured, record, is_warmup=number == 0)
                done += 1
        if progress is not None:
            progress(total, total, "done")
        return [measured for _, measured in work]


def _keep(measured: Measured, record: RunRecord, *, is_warmup: bool) -> None:
    if measured.ledger is None:
        measured.ledger, measured.layer_counts = record.ledger, record.layer_counts
    measured.ledgers_repeat &= without_time(measured.ledger) == without_time(record.ledger)
    if is_warmup:
        return
    if measured.shown:
        trace = measured.prepared.source.trace
        measured.recorded.append(
            measured_segments(record, measured.shown, trace.layer_ids_L.tolist(), trace.num_experts)
        )
    of_requests = request_times(measured.prepared.passes, record.pass_start_ns, record.pass_end_ns)
    landed = np.array([copy.landed_ns for copy in record.copies], np.int64)
    asked = np.array([copy.asked_ns for copy in record.copies], np.int64)
    before = np.maximum(asked, np.r_[0, landed[:-1]]) if len(landed) else landed
    measured.samples.append(
        Sample(
            of_requests.mean_tpot_s, of_requests.mean_ttft_s, record.makespan_s,
            event_times(record.pass_start_ns, record.end_ns), record.part_ns, record.expert_tokens_M,
            record.expert_ns_M, landed - before, record.shares(), record.overlap(), record.ledger.late or 0,
        )
    )  # fmt: skip


def event_times(pass_start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """[P, L] how long each layer took, from the end of the one before it (of the pass's start)."""
    before = np.concatenate((pass_start_ns[:, None], end_ns[:, :-1]), axis=1)
    return end_ns - before


def without_time(ledger: Ledger) -> tuple[object, ...]:
    """The counts that time does not decide: hits and late misses go together, because which of the two it is depends on it."""
    return (
        ledger.logical, ledger.accesses, ledger.hits + (ledger.late or 0), ledger.collision, ledger.compulsory,
        ledger.capacity, ledger.evictions, ledger.bypasses, ledger.waves, ledger.experts_moved, ledger.bytes_moved,
        ledger.prefetch_issued, ledger.prefetch_used, ledger.prefetch_evicted_unused, ledger.prefetch_unused_at_end,
        ledger.prefetch_refused,
    )  # fmt: skip
