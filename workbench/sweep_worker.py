"""What a worker does: scenarios in, rows out. Traces are mapped and their surveys kept, because batches share them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WorkbenchError
from ..sim.cache.registry import policy
from ..sim.decisions import DecisionCost
from ..sim.engines.run import RunResult
from ..sim.passes import Passes, build_passes
from ..sim.prefetch.registry import prefetcher
from ..sim.request_times import request_times
from .cases import CacheSize, Case, cache_sizes
from .machine import Machine, prepare_machine
from .reporting import regime
from .runs import Runs
from .sweep_inputs import Inputs, named_input
from .sweep_point import Point
from .sweep_table import LAYER_COUNTS

if TYPE_CHECKING:
    from ..sim.hardware import HardwareSpec
    from ..traces.expert_trace import ExpertTrace

_KEPT_TRACES = 2
_KEPT_MACHINES = 64  # cost tables: some hundred kilobytes each
_MOST_SEQUENCES = 256  # kept a scenario for intervals; more are averaged in groups
_OF_LEDGER = (
    "logical", "accesses", "hits", "misses", "late", "collision", "compulsory", "hit_rate", "effective_miss_fraction",
    "evictions", "experts_moved", "bytes_moved", "first_load_bytes", "bytes_per_output_token", "prefetch_issued",
    "prefetch_used", "prefetch_late", "prefetch_wasted", "prefetch_evicted_unused", "prefetch_refused", "bypasses",
    "waves", "ttft_s", "tpot_s", "makespan_s", "compute_busy_s", "link_busy_s", "storage_busy_s", "stall_s",
    "decision_s", "withdrawn_bytes", "engine", "is_bound", "is_causal", "capacity_experts", "capacity_bytes",
)  # fmt: skip
_OF_MISSES = ("computed_on_host", "lowered", "substituted", "skipped")
_Value = TypeVar("_Value")


class Task(NamedTuple):
    """One scenario on its way to a worker."""

    scenario: str
    """Its hash."""
    point: dict[str, Any]


class _StudyRuns(Runs):
    """The runs over one trace, with machine and options changed from scenario to scenario."""

    def __init__(
        self, trace: ExpertTrace, passes: Passes, machine: Machine, options: Mapping[str, Any]
    ) -> None:
        super().__init__(trace, passes, machine, options)
        self._decision_ns: int | None = None
        self._regimes: dict[tuple[int, str], dict[str, float]] = {}

    def use(self, machine: Machine, options: Mapping[str, Any], decision_ns: int | None) -> None:
        self.machine, self.options, self._decision_ns = machine, options, decision_ns
        self.warm_passes, self.decisions, self.warnings = {}, {}, []

    def _decision(self, case: Case, slots: int) -> DecisionCost:
        if self._decision_ns is None or case.policy.is_bound:
            return super()._decision(case, slots)
        return DecisionCost(self._decision_ns, "stated", "the study's axis decision_ns")

    def outcome(self, case: Case) -> dict[str, Any]:
        """Row of a scenario, with its sequences' times and the regime it ran in."""
        engine = self.prepare(case)
        result = engine.run(self.options["engine"])
        found = self._row(case, result)
        row = {name: found[name] for name in _OF_LEDGER}
        row["capacity_misses"] = found["capacity"]
        row["decision_cost_ns"] = engine.setup.decision_ns if self.machine.costs is not None else None
        row["lossy_weight_share"] = found.get("lossy_weight_share")
        row |= {name: found.get(name, 0) for name in _OF_MISSES}
        row["sequences"] = self.trace.num_sequences
        row["resident_share"] = case.size.experts / (self.trace.num_layers * self.trace.num_experts)
        row["layer_ids"] = self.trace.layer_ids_L.tolist()
        row |= {f"{name}_by_layer": values for name, values in self._layers(result).items()}
        warm = self._warm(case)
        return row | self._regime(case.size.experts) | self._hits(result, warm) | self._sequences(result, warm)

    def _regime(self, experts: int) -> dict[str, float]:
        if experts < self.trace.num_layers:
            return {}  # some layers have no quota, so r means nothing there
        key = (experts, self.options["scope"])
        if key not in self._regimes:
            found = regime(self.look.union_PL, self.pools(experts))
            self._regimes[key] = {name.replace(" ", "_"): value for name, value in found.items()}
        return self._regimes[key]

    def _layers(self, result: RunResult) -> dict[str, list[int]]:
        """Counts of each layer, and its stall where times are known: a few hundred bytes a scenario."""
        found = dict(zip(LAYER_COUNTS, result.layer_counts.T.tolist(), strict=True))
        if result.layer_stall_ns is None:
            return {name: values for name, values in found.items() if name != "late"}
        return {**found, "stall_ns": result.layer_stall_ns.tolist()}

    def _hits(self, result: RunResult, warm: int) -> dict[str, list[int]]:
        """Hits and accesses of sequences, or of groups of them; empty where sequences share passes."""
        of_pass = self.passes.sequence_of_pass()
        if of_pass is None:
            return {}
        both = np.zeros((2, self.trace.num_sequences), np.int64)
        np.add.at(both[0], of_pass[warm:], result.pass_hits[warm:])
        np.add.at(both[1], of_pass[warm:], self.look.union_PL[warm:].sum(axis=1, dtype=np.int64))
        if both.shape[1] > _MOST_SEQUENCES:
            both = np.add.reduceat(both, _group_starts(both.shape[1]), axis=1)
        return dict(zip(("hits_by_sequence", "accesses_by_sequence"), both.tolist(), strict=True))

    def _sequences(self, result: RunResult, warm: int) -> dict[str, Any]:
        if result.pass_start_ns is None or result.pass_end_ns is None:
            return {}
        times = request_times(self.passes, result.pass_start_ns, result.pass_end_ns, warm)
        return {"ttft_s_by_sequence": _grouped(times.ttft_s), "tpot_s_by_sequence": _grouped(times.tpot_s)}


def _grouped(values: NDArray[np.float64]) -> list[float | None]:
    """Times of sequences, or of groups of them where they are many; None where undefined."""
    if len(values) > _MOST_SEQUENCES:
        starts = _group_starts(len(values))
        known = ~np.isnan(values)
        sums, counts = (
            np.add.reduceat(part, starts) for part in (np.where(known, values, 0.0), known.astype(float))
        )
        values = np.divide(sums, counts, out=np.full(_MOST_SEQUENCES, np.nan), where=counts > 0)
    return [None if math.isnan(value) else value for value in values.tolist()]


def _group_starts(sequences: int) -> NDArray[np.int64]:
    return np.linspace(0, sequences, _MOST_SEQUENCES + 1).astype(np.int64)[:-1]


class Bench:
    """Runs tasks over one set of inputs, keeping what scenarios share."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._runs: OrderedDict[Any, _StudyRuns] = OrderedDict()
        self._machines: OrderedDict[Any, Machine] = OrderedDict()
        self._traces: OrderedDict[Any, tuple[ExpertTrace, Passes]] = OrderedDict()

    def row(self, task: Task) -> dict[str, Any]:
        """The row of a scenario; a scenario that cannot run is a row with its error."""
        configuration = {name: value for name, value in task.point.items() if value is not None}
        try:
            found = {"status": "ok", **self._outcome(Point.model_validate(task.point))}
        except (WorkbenchError, OSError) as error:
            found = {"status": "failed", "error": str(error)}
        except (RuntimeError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
            # A fault of ours in one scenario must not cost a night's other scenarios; it is shown, not hidden.
            found = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        return {"scenario": task.scenario, **configuration, **found}

    def _outcome(self, point: Point) -> dict[str, Any]:
        chosen, ahead = policy(point.policy), prefetcher(point.prefetch)
        trace_key = (point.trace_key, point.batch)
        trace, passes = _kept(self._traces, trace_key, _KEPT_TRACES, lambda: self._load(point))
        machine_key = (
            *trace_key, point.model, point.hardware, point.profile, point.link_bytes_per_s, point.weights, point.context,
            point.experts_home, point.capacity == "auto",
        )  # fmt: skip
        machine = _kept(
            self._machines, machine_key, _KEPT_MACHINES, lambda: self._machine(point, trace, passes)
        )
        options = {**point.model_dump(), "seed": point.seed}
        shared = (*trace_key, point.tie_seed, point.contract == "access", point.train_share)
        runs = _kept(self._runs, shared, _KEPT_TRACES, lambda: _StudyRuns(trace, passes, machine, options))
        runs.use(machine, options, point.decision_ns)
        if point.prefetch_budget_bytes is not None and machine.expert_bytes is None:
            raise UsageError("a prefetch budget is in bytes, and only a model says how large an expert is")
        return runs.outcome(Case(chosen, ahead, _size(point, chosen.name, trace, machine)))

    def _load(self, point: Point) -> tuple[ExpertTrace, Passes]:
        from ..traces import read_trace

        found = self.inputs.trace(point)
        trace = read_trace(found.path, format=found.format)
        return trace, build_passes(trace, point.batch)

    def _machine(self, point: Point, trace: ExpertTrace, passes: Passes) -> Machine:
        folder = self.inputs.folder
        model, hardware, profile = (
            None if name is None else named_input(name, folder)
            for name in (point.model, point.hardware, point.profile)
        )
        return prepare_machine(
            trace, passes, model=model, hardware=None if hardware is None else _linked(hardware, point.link_bytes_per_s),
            profile=profile, weights=point.weights, context=point.context, batch=point.batch or 1,
            want_auto=point.capacity == "auto", experts_home=point.experts_home,
        )  # fmt: skip


def _linked(name: str, link_bytes_per_s: float | None) -> HardwareSpec:
    from ..sim.catalog import load_hardware
    from ..sim.hardware import Quantity

    sheet = load_hardware(name)
    if link_bytes_per_s is None:
        return sheet
    link = Quantity(link_bytes_per_s, "bytes/s", "assumed", "the study's axis link_bytes_per_s")
    return replace(sheet, link_bandwidth=link)


def _size(point: Point, name: str, trace: ExpertTrace, machine: Machine) -> CacheSize:
    if name == "never":
        return CacheSize(point.capacity, 0)
    sizes, _ = cache_sizes(
        (point.capacity,), num_layers=trace.num_layers, num_experts=trace.num_experts, top_k=trace.top_k,
        scope=point.scope, contract=point.contract, expert_bytes=machine.expert_bytes, auto_experts=machine.auto_experts,
    )  # fmt: skip
    return sizes[0]


def _kept(cache: OrderedDict[Any, _Value], key: Any, most: int, make: Callable[[], _Value]) -> _Value:
    """The value of a key, made when it is not kept; the one used longest ago goes."""
    if key not in cache:
        while len(cache) >= most:
            cache.popitem(last=False)
        cache[key] = make()
    cache.move_to_end(key)
    return cache[key]


_BENCH: Bench | None = None


def run_batch(inputs: Inputs, tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Rows of some tasks, in their order. A worker keeps its bench from batch to batch."""
    global _BENCH  # noqa: PLW0603 — one a process, which is the point
    if _BENCH is None or _BENCH.inputs != inputs:
        _BENCH = Bench(inputs)
    return [_BENCH.row(task) for task in tasks]
