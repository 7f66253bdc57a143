"""From runs of the calibration cases to a cost table, and from a cost table to a predicted run.

Times of parts are medians over repeats, pass by pass, smoothed over passes of one size, then scaled so that each part's total
equals the median of its totals: a token's time adds up means, and a median of parts would lose what is rarely slow. Last, the
copy time is closed: it is set so that the calibration runs' simulated makespans add up to the measured ones, which brings in
what no part shows by itself (the wake-up of a waiting thread, copies slowed by arithmetic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..kernels.runtime.record import AFTER, BEFORE, DECIDE, RESIDENT
from ..sim.costs import CostTable
from ..sim.engines.run import Engine, RunResult, Setup
from ..sim.passes import Passes
from ..sim.request_times import request_times
from .validate_run import Measured, Prepared, Sample, event_times

_CLOSING_STEPS = 18
_CLOSING_RANGE = (0.5, 3.0)
_LINE_FROM = 6  # passes of one size from which a line over the context is fitted


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A group's costs. Classes: first MoE layer, those between, last."""

    before_ns_PC: NDArray[np.int64]
    resident_ns_PC: NDArray[np.int64]
    after_ns_PC: NDArray[np.int64]
    expert_ns_N: NDArray[np.int64]
    """[tokens + 1]"""
    copy_ns: int
    copy_direct_ns: int | None
    """The mean copy as it was timed, before closing; None where the calibration runs made none."""
    decision_ns: int
    layer_class_L: NDArray[np.int32]
    expert_bytes: int

    def table(self, passes: Passes) -> CostTable:
        """Raises `RuntimeError` for a trace with other passes than those fitted on."""
        if len(self.before_ns_PC) != passes.count:
            raise RuntimeError(f"fitted on {len(self.before_ns_PC)} passes, asked for {passes.count}")
        classes = self.before_ns_PC.shape[1]
        return CostTable(
            layer_class_L=self.layer_class_L, before_ns_PC=self.before_ns_PC, resident_ns_PC=self.resident_ns_PC,
            expert_ns_CN=np.tile(self.expert_ns_N, (classes, 1)), after_ns_PC=self.after_ns_PC,
            copy_ns_C=np.full(classes, max(1, self.copy_ns), np.int64), storage_ns_C=np.ones(classes, np.int64),
            expert_bytes_C=np.full(classes, self.expert_bytes, np.int64), copy_engines=1,
            source="calibrated by real runs of other traces on this machine", provenance=(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """One simulated run."""

    tpot_s: float | None
    ttft_s: float | None
    makespan_s: float
    event_ns: NDArray[np.int64]
    """[P, L]"""
    shares: dict[str, float]
    result: RunResult
    setup: Setup


def fit(runs: Sequence[Measured]) -> Fitted:
    """Costs from the repeats of a group's calibration cases. All have the same passes."""
    first = runs[0].prepared
    layers = first.source.trace.num_layers
    layer_class = np.ones(layers, np.int32)
    layer_class[-1], layer_class[0] = 2, 0
    tokens, context = first.passes.tokens(), first.passes.context_sum()
    samples = [sample for run in runs for sample in run.samples]
    parts = np.stack([sample.part_ns for sample in samples])  # [R, 6, P, L]

    def of_part(part: int) -> NDArray[np.int64]:
        table = np.zeros((len(tokens), 3), np.int64)
        for c in range(3):
            mine = parts[:, part][:, :, layer_class == c]  # [R, P, layers of the class]
            if mine.shape[2]:
                table[:, c] = _curve(mine.mean(axis=2), tokens, context)
        return table

    decide = parts[:, DECIDE].mean(axis=(1, 2))
    direct = [float(sample.copy_ns.mean()) for sample in samples if len(sample.copy_ns)]
    copy = float(np.median(direct)) if direct else 1.0
    assert first.setup.size_per_layer is not None
    fitted = Fitted(
        before_ns_PC=of_part(BEFORE), resident_ns_PC=of_part(RESIDENT), after_ns_PC=of_part(AFTER),
        expert_ns_N=_of_experts(samples, int(tokens.max())), copy_ns=round(copy),
        copy_direct_ns=round(copy) if direct else None, decision_ns=round(float(np.median(decide))),
        layer_class_L=layer_class, expert_bytes=int(first.setup.size_per_layer[0]),
    )  # fmt: skip
    return _closed(fitted, runs) if direct else fitted


def predict(fitted: Fitted, prepared: Prepared) -> Predicted:
    """Simulate a case on fitted costs, with the fast engine."""
    setup = replace(
        prepared.setup,
        costs=fitted.table(prepared.passes),
        decision_ns=fitted.decision_ns,
        record_events=True,
    )
    result = Engine(prepared.source, setup).run("numba")
    assert result.totals is not None
    assert result.events is not None
    assert result.pass_start_ns is not None
    assert result.pass_end_ns is not None
    times = request_times(prepared.passes, result.pass_start_ns, result.pass_end_ns)
    makespan = result.totals["makespan_ns"]
    layers = prepared.source.trace.num_layers
    stall, host = result.totals["stall_ns"] / makespan, result.totals["host_busy_ns"] / makespan
    return Predicted(
        times.mean_tpot_s, times.mean_ttft_s, makespan / 1e9,
        event_times(result.pass_start_ns, result.events["end"].reshape(-1, layers)),
        {"compute": 1 - stall - host, "stall": stall, "host": host}, result, setup,
    )  # fmt: skip


def _curve(
    runs_RP: NDArray[np.floating], tokens: NDArray[np.int64], context: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[P] a part's time in each pass: medians over runs, smoothed over passes of one size, scaled to the median total."""
    middle = np.median(runs_RP, axis=0)
    smooth = middle.astype(np.float64)
    for size in np.unique(tokens):
        mine = tokens == size
        smooth[mine] = middle[mine].mean()
        if mine.sum() >= _LINE_FROM and np.ptp(context[mine]) > 0:
            slope, level = np.polyfit(context[mine], middle[mine], 1)
            if slope > 0:  # a longer context never makes a pass quicker
                smooth[mine] = np.maximum(level + slope * context[mine], 0.0)
        if smooth[mine].sum() > 0:  # a prompt's pass and a token's are slowed by different things
            smooth[mine] *= float(np.median(runs_RP[:, mine].sum(axis=1))) / smooth[mine].sum()
    rounded: NDArray[np.int64] = np.rint(smooth).astype(np.int64)
    return rounded


def _of_experts(samples: Sequence[Sample], most: int) -> NDArray[np.int64]:
    """[most + 1] one expert for n tokens: medians per n, interpolated, scaled to the median of the runs' totals."""
    tokens = np.concatenate([sample.expert_tokens_M for sample in samples])
    times = np.concatenate([sample.expert_ns_M for sample in samples])
    known = np.unique(tokens)
    medians = np.maximum.accumulate([float(np.median(times[tokens == n])) for n in known])
    table = np.interp(np.arange(most + 1), known, medians)
    last = int(known[-1])
    if last < most and len(known) > 1:
        slope = (medians[-1] - medians[0]) / (last - known[0])
        table[last:] = medians[-1] + slope * (np.arange(last, most + 1) - last)
    ratios = [float(s.expert_ns_M.sum()) / float(table[s.expert_tokens_M].sum()) for s in samples]
    rounded: NDArray[np.int64] = np.rint(table * float(np.median(ratios))).astype(np.int64)
    rounded[0] = 0
    return rounded


def _closed(fitted: Fitted, runs: Sequence[Measured]) -> Fitted:
    """The copy time at which simulated and measured makespans of the calibration runs add up alike."""
    missing = [run for run in runs if any(len(sample.copy_ns) for sample in run.samples)]
    wanted = sum(float(np.median([sample.makespan_s for sample in run.samples])) for run in missing)

    def total(copy_ns: int) -> float:
        tried = replace(fitted, copy_ns=copy_ns)
        return sum(predict(tried, run.prepared).makespan_s for run in missing)

    low, high = (fitted.copy_ns * factor for factor in _CLOSING_RANGE)
    for _ in range(_CLOSING_STEPS):
        middle = (low + high) / 2
        if total(round(middle)) < wanted:
            low = middle
        else:
            high = middle
    return replace(fitted, copy_ns=round((low + high) / 2))
