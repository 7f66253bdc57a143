"""How long a kernel takes: raw samples of warm calls, the first call apart, doubts said aloud.

The rules come from timers that measured themselves (case B21). CUDA calls are queued with their events and the host waits
once, at the end. Warm-up is counted in completed calls, never in seconds, because the first call may carry compilation.
What is shorter than the clock is batched. Repeats go on until the interval of the median is tight or the budget is
spent. Nothing is dropped: an outlier is flagged, and the median does not mind it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from ..errors import RunError, UsageError

Call = Callable[[], object]

CONFIDENCE = 0.95
_STEPS_PER_SAMPLE = 200  # a sample of 200 clock steps is known to half a percent
_MAX_BATCH = 2**20
_OUTLIER_SIGMAS = 5.0  # hyperfine warns of a first run above mean + 5 sigma of the rest
_NORMAL_MAD = 1.4826  # median absolute deviation → standard deviation of a normal (Rousseeuw and Croux 1993)
_DRIFT = 0.1  # a tenth between the thirds: twice the 5 % that kernel times repeat within
_FLUSH_BYTES = 2**28  # several times the largest L2 cache (B200: 126 MB)


class Clock(Protocol):
    """Anything that tells seconds. Tests pass one that they move by hand."""

    def __call__(self) -> float: ...


class Stopwatch(Protocol):
    """Times `calls` calls in a row, the k-th being `functions[(start + k) % len(functions)]`."""

    @property
    def name(self) -> str: ...
    @property
    def step_s(self) -> float: ...
    def lap(self, functions: Sequence[Call], start: int, calls: int) -> float:
        """Seconds of all `calls` together."""
        ...


@dataclass(frozen=True, slots=True)
class CpuStopwatch:
    """Wall time of calls that have ended when they return, or when `wait` does."""

    clock: Clock = time.perf_counter
    known_step_s: float | None = None
    """What the clock can tell apart, in seconds; None: found out by reading it."""
    name: str = "perf_counter"
    wait: Call | None = None
    """Waits for work that calls may leave behind, before the clock is read: a device's copies. None: they leave none."""

    @property
    def step_s(self) -> float:
        return clock_step_s(self.clock) if self.known_step_s is None else self.known_step_s

    def lap(self, functions: Sequence[Call], start: int, calls: int) -> float:
        clock, count, wait = self.clock, len(functions), self.wait
        if wait is not None:
            wait()
        began = clock()
        for position in range(start, start + calls):
            functions[position % count]()
        if wait is not None:
            wait()
        return clock() - began


class CudaStopwatch:
    """Device time between events around queued calls; the L2 cache is overwritten before each call.

    The host queues everything and waits once. Before the first call so many overwrites are queued as the host needed
    time for queueing the lap before, so the device never waits for launches and they do not show as time.
    `flush=False` is for callers that rotate buffers larger than the cache: then one pair of events spans the lap.
    """

    name = "cuda_event"
    step_s = 0.5e-6  # cudaEventElapsedTime: "resolution of around 0.5 microseconds"
    _SHORTEST_FLUSH_S = 30e-6  # 2²⁸ bytes at 8 TB/s, the fastest memory there is (B200)
    _LONGEST_LEAD = 512  # half of the launches that a stream queues before it blocks the host

    def __init__(self, device: str = "cuda:0", *, flush: bool = True) -> None:
        import torch

        self._device = torch.device(device)
        self._flush = flush
        self._buffer = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self._device)
        self._queueing_s = 0.0

    def lap(self, functions: Sequence[Call], start: int, calls: int) -> float:
        import torch

        stream = torch.cuda.current_stream(self._device)
        for _ in range(min(self._LONGEST_LEAD, 1 + math.ceil(self._queueing_s / self._SHORTEST_FLUSH_S))):
            self._buffer.zero_()
        began = time.perf_counter()
        groups = [[position] for position in range(calls)] if self._flush else [list(range(calls))]
        marks: list[list[torch.cuda.Event]] = []
        for group in groups:
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            if self._flush and marks:
                self._buffer.zero_()
            pair[0].record(stream)
            for position in group:
                functions[(start + position) % len(functions)]()
            pair[1].record(stream)
            marks.append(pair)
        self._queueing_s = time.perf_counter() - began
        stream.synchronize()
        return sum(float(pair[0].elapsed_time(pair[1])) for pair in marks) * 1e-3


def clock_step_s(clock: Clock, readings: int = 64) -> float:
    """The smallest step a clock is seen to make, in seconds; 0 for a clock that stands still."""
    steps, before = [], clock()
    for _ in range(readings):
        now = clock()
        if now > before:
            steps.append(now - before)
        before = now
    return min(steps, default=0.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured. Every sample is seconds per call; statistics are derived, never stored instead."""

    samples_s: tuple[float, ...]
    """In the order taken. Each is the mean of `calls_per_sample` calls in a row."""
    first_call_s: float | None
    """The very first call, with whatever compilation it carried. In no statistic."""
    warmup_calls: int
    calls_per_sample: int
    stopwatch: str
    stopped_by: str
    """"tight", "budget" or "max_samples"."""

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    @property
    def best_s(self) -> float:
        return min(self.samples_s)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """95 % interval of the median; None for too few samples to give one (fewer than 6)."""
        return median_interval(self.samples_s)

    @property
    def spread(self) -> float | None:
        """(p75 − p25) / median; None for a single sample."""
        if len(self.samples_s) < 2:
            return None
        low, _, high = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return (high - low) / self.median_s

    @property
    def outliers(self) -> tuple[int, ...]:
        """Positions of samples beyond 5 robust standard deviations above the median. They stay in the samples."""
        middle = self.median_s
        deviation = _NORMAL_MAD * statistics.median(abs(sample - middle) for sample in self.samples_s)
        limit = middle + _OUTLIER_SIGMAS * max(
            deviation, 0.01 * middle
        )  # equal samples do not make 1 % an outlier
        return tuple(position for position, sample in enumerate(self.samples_s) if sample > limit)

    @property
    def drift(self) -> float | None:
        """Median of the last third over that of the first, less 1; None for fewer than 9 samples."""
        third = len(self.samples_s) // 3
        if third < 3:
            return None
        return statistics.median(self.samples_s[-third:]) / statistics.median(self.samples_s[:third]) - 1

    @property
    def drifted(self) -> bool:
        """Whether the thirds differ by more than a tenth: a machine that warmed up, or neighbours that came."""
        return self.drift is not None and abs(self.drift) > _DRIFT

    def warnings(self) -> list[str]:
        """Doubts, each with what helps."""
        found = []
        if (
            self.first_call_s is not None
            and self.first_call_s > self.median_s + _OUTLIER_SIGMAS * self._sigma()
        ):
            times = self.first_call_s / self.median_s
            found.append(
                f"the first call took {times:.1f} times the median; it is kept apart and not counted"
            )
        if self.outliers:
            many = f"{len(self.outliers)} of {len(self.samples_s)} samples lie far above the median"
            found.append(f"{many}: other work on this machine? They are kept; the median is used")
        if self.drifted:
            found.append(
                f"the last third differs from the first by {self.drift:+.0%}: measure again when it is quiet"
            )
        if self.stopped_by == "budget":
            found.append("the budget ended before the interval of the median was tight: allow more time")
        return found

    def _sigma(self) -> float:
        return statistics.pstdev(self.samples_s)


def measure(
    function: Call | Sequence[Call],
    *,
    warmup_calls: int = 3,
    min_samples: int = 7,
    max_samples: int = 200,
    budget_s: float = 1.0,
    tightness: float = 0.02,
    stopwatch: Stopwatch | None = None,
    wall: Clock = time.perf_counter,
) -> Timing:
    """Time `function`, or several in rotation (the same work on other buffers, together larger than the cache).

    `warmup_calls` complete calls come before the samples, the first of them timed alone. Sampling ends when the half-width of
    the 95 % interval of the median is below `tightness` of it, at `max_samples`, or when `budget_s` seconds of `wall`
    are spent, but never before `min_samples`. Raises `UsageError` for bad settings, `RunError` for what no batch makes
    longer than the clock's step, and whatever `function` raises.
    """
    functions = list(function) if isinstance(function, Sequence) else [function]
    if not functions:
        raise UsageError("nothing to measure: the list of functions is empty")
    for name, value, least in (("warmup_calls", warmup_calls, 0), ("min_samples", min_samples, 1)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if max_samples < min_samples:
        raise UsageError(f"max_samples must be at least min_samples ({min_samples}), got {max_samples}")
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise UsageError(f"budget_s must be positive, got {budget_s}")
    watch = stopwatch or CpuStopwatch()
    began = wall()
    first_call_s = watch.lap(functions, 0, 1) if warmup_calls else None
    if warmup_calls > 1:
        watch.lap(functions, 1, warmup_calls - 1)
    calls, position, sample = _batch(watch, functions, warmup_calls, budget_s / min_samples)
    samples = [sample]
    while True:
        if len(samples) >= min_samples:
            stopped_by = _stop(samples, tightness, max_samples, wall() - began >= budget_s)
            if stopped_by is not None:
                return Timing(tuple(samples), first_call_s, warmup_calls, calls, watch.name, stopped_by)
        samples.append(watch.lap(functions, position, calls) / calls)
        position += calls


def _stop(samples: Sequence[float], tightness: float, max_samples: int, is_spent: bool) -> str | None:
    interval = median_interval(samples)
    if interval is not None and (interval[1] - interval[0]) / 2 <= tightness * statistics.median(samples):
        return "tight"
    if len(samples) >= max_samples:
        return "max_samples"
    return "budget" if is_spent else None


def _batch(
    watch: Stopwatch, functions: Sequence[Call], position: int, longest_s: float
) -> tuple[int, int, float]:
    """Calls per sample such that a sample is many clock steps long, the position after finding out, the first sample."""
    if watch.step_s <= 0:
        raise RunError("the clock stands still: nothing can be measured with it")
    wanted_s = _STEPS_PER_SAMPLE * watch.step_s
    calls = 1
    while True:
        took_s = watch.lap(functions, position, calls)
        position += calls
        if took_s >= wanted_s or (took_s > 0 and took_s >= longest_s):
            return calls, position, took_s / calls
        if calls >= _MAX_BATCH:
            raise RunError(
                f"{calls} calls take {took_s:g} s, less than the clock can tell; give the kernel more work"
            )
        growth = wanted_s / took_s * 1.2 if took_s > 0 else 8.0
        calls = min(_MAX_BATCH, max(calls + 1, math.ceil(calls * min(growth, 8.0))))


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Distribution-free interval of the median from order statistics (David and Nagaraja 2003, §7.1).

    None where even the whole range does not reach `confidence` (fewer than 6 samples for 95 %).
    """
    depth = _depth(len(samples), confidence)
    if depth is None:
        return None
    ordered = sorted(samples)
    return ordered[depth], ordered[-1 - depth]


@cache
def _depth(count: int, confidence: float) -> int | None:
    """How many samples lie outside at each end: the largest d with P(Binomial(n, ½) ≤ d) ≤ (1 − confidence) / 2."""
    allowed = (1 - confidence) / 2 * 2.0**count if count < 1000 else math.inf
    if math.isinf(allowed):  # the normal limit, exact enough there
        return max(
            0,
            math.floor(
                count / 2 - statistics.NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(count) / 2
            ),
        )
    below, depth = 0, None
    for position in range(count // 2):
        below += math.comb(count, position)
        if below > allowed:
            break
        depth = position
    return depth
