"""The study `replay`: a trace through every policy × prefetcher × capacity asked for, with the bounds beside them.

trace ─► passes ─► survey ─┐
model + hardware ─► costs ─┼─► one Engine a case ─► rows, layers ─► ReplayResult
cases (policy, prefetch, capacity) ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import UsageError, unknown_name
from ..files import sha256_of
from ..sim.blocks import BlockSource
from ..sim.cache.core import CONTRACTS
from ..sim.capacity_split import SCOPES, split_capacity
from ..sim.decisions import DecisionCost, decision_cost
from ..sim.engines.run import ENGINES, Engine, RunResult, Setup
from ..sim.engines.survey import NextUses, Survey, next_uses, survey
from ..sim.passes import Passes, build_passes
from ..sim.request_times import output_tokens, request_times
from ..traces.expert_trace import ExpertTrace
from .cases import Case, all_cases, cache_sizes
from .machine import Machine, prepare_machine
from .reporting import reporting_block
from .result import ReplayResult, sentence_of
from .timeline import segments_of

if TYPE_CHECKING:
    from ..sim.hardware import HardwareSpec
    from ..sim.model import ModelSpec

__all__ = ["ReplayResult", "replay"]

Progress = Callable[[int, int, str], None]


def replay(
    trace: ExpertTrace | str | Path,
    *,
    model: str | Path | ModelSpec | None = None,
    hardware: str | Path | HardwareSpec | None = None,
    policies: Sequence[str] = ("least-stale", "lru"),
    prefetch: Sequence[str] = ("none",),
    capacities: Sequence[str] = ("5%",),
    weights: str = "bf16",
    warm: bool = False,
    scope: str = "global",
    contract: str = "slots",
    batch: int | None = None,
    seed: int = 0,
    tie_seed: int | None = None,
    context: int = 4096,
    experts_home: str = "host",
    prefetch_budget_bytes: int | None = None,
    decisions: str = "serial",
    engine: str = "numba",
    format: str | None = None,
    timeline: bool = True,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay an expert trace under each policy, prefetcher and capacity, and compare.

    `capacities` are shares of all routed experts ("5%"), bytes ("2GiB"), experts ("64") or "auto" (what `hardware`
    has left after dense weights, shared experts and the KV cache of `context` tokens for each of `batch` sequences).
    Without a model nothing is known of bytes; without a model and hardware nothing of times: then it counts.
    `batch=None` follows the trace's own steps where it has them, else one sequence at a time. `decisions` are
    "serial" with the step, "beside" it, or "free". `out` keeps the result in a directory. `progress` is told
    (runs done, runs in all, what runs now).

    Raises `UsageError` for what cannot be, before anything runs.
    """
    for kind, value, known in (
        ("contract", contract, CONTRACTS),
        ("scope", scope, SCOPES),
        ("engine", engine, ENGINES),
        ("decisions", decisions, ("serial", "beside", "free")),
    ):
        if value not in known:
            raise unknown_name(kind, value, known)
    loaded, path = _loaded(trace, format)
    passes = build_passes(loaded, batch)
    machine = prepare_machine(
        loaded, passes, model=model, hardware=hardware, weights=weights, context=context, batch=batch or 1,
        want_auto="auto" in capacities, experts_home=experts_home,
    )  # fmt: skip
    sizes, warnings = cache_sizes(
        capacities, num_layers=loaded.num_layers, num_experts=loaded.num_experts, top_k=loaded.top_k, scope=scope,
        contract=contract, expert_bytes=machine.expert_bytes, auto_experts=machine.auto_experts,
    )  # fmt: skip
    if prefetch_budget_bytes is not None and machine.expert_bytes is None:
        raise UsageError(
            "a prefetch budget is in bytes, and only a model says how large an expert is: give a model"
        )
    options = {
        "policies": list(policies), "prefetch": list(prefetch), "capacities": list(capacities), "weights": weights,
        "warm": warm, "scope": scope, "contract": contract, "batch": batch, "seed": seed, "tie_seed": tie_seed,
        "context": context, "experts_home": experts_home, "prefetch_budget_bytes": prefetch_budget_bytes,
        "decisions": decisions, "engine": engine,
    }  # fmt: skip
    runs = _Runs(loaded, passes, machine, options)
    cases = all_cases(policies, prefetch, sizes, loaded.num_layers * loaded.num_experts)
    for case in cases:
        if case.prefetch.needs:
            runs.prepare(case)  # refuses here, before anything has run, what the trace cannot serve
    rows, layers = [], []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number, len(cases), f"{case.policy.spec} at {case.size.label}")
        row, of_layers = runs.run(case)
        rows.append(row)
        layers.extend(of_layers)
    if progress is not None:
        progress(len(cases), len(cases), "done")
    order = _order(rows, has_times=machine.costs is not None)
    rows = [rows[index] for index in order]
    labels = [size.label for size in sizes]
    result = ReplayResult(
        rows=pd.DataFrame(rows),
        layers=pd.DataFrame(layers),
        reporting=reporting_block(
            rows=rows, sizes=sizes, look=runs.look, num_experts=loaded.num_experts, top_k=loaded.top_k,
            logical=runs.logical, options=options, scheduling=passes.scheduling, decisions=runs.decisions,
            warm_passes=runs.warm_passes, output_tokens=output_tokens(passes),
        ),
        run={
            "version": _version(),
            "trace": _trace_facts(loaded, path),
            "model": machine.model_facts,
            "hardware": machine.hardware_facts,
            "options": options,
            "costs": machine.cost_facts,
            "warnings": [*warnings, *machine.warnings, *runs.warnings, *loaded.notes],
            "sentence": sentence_of(rows, labels, has_times=machine.costs is not None),
        },
        timeline=runs.timeline(_for_timeline(rows, cases, labels)) if timeline and machine.costs is not None else None,
    )  # fmt: skip
    if out is not None:
        result.save(out)
    return result


class _Runs:
    """Runs cases over one trace; what they share (survey, next uses, blocks) is made once."""

    def __init__(
        self, trace: ExpertTrace, passes: Passes, machine: Machine, options: Mapping[str, Any]
    ) -> None:
        self.trace, self.passes, self.machine, self.options = trace, passes, machine, options
        self._sources: dict[tuple[bool, bool], BlockSource] = {}
        self.look: Survey = survey(self._source("none"))
        self._future: NextUses | None = None
        self.logical = 0
        self.warm_passes: dict[str, int] = {}
        self.decisions: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []

    def _source(self, needs: str) -> BlockSource:
        key = (needs == "previous", needs == "predicted")
        if key not in self._sources:
            tie_seed = self.options["tie_seed"]
            self._sources[key] = BlockSource(
                self.trace,
                self.passes,
                with_previous=key[0],
                with_predicted=key[1],
                tie_rng=None if tie_seed is None else np.random.default_rng(tie_seed),
            )
        return self._sources[key]

    def prepare(self, case: Case) -> Engine:
        """The engine of a case. Raises `UsageError` where the trace lacks what the case needs."""
        options, machine = self.options, self.machine
        size = machine.expert_bytes or 1
        pools = split_capacity(case.size.experts, self.trace.num_layers, options["scope"])
        decision = self._decision(case, int(pools.max()))
        if case.policy.needs_future and self._future is None:
            self._future = next_uses(
                self._source("none"), self.look.accesses, by_access=options["contract"] == "access"
            )
        setup = Setup(
            policy=case.policy,
            capacity_per_pool=pools * size,
            prefetch=case.prefetch,
            contract=options["contract"],
            size_per_layer=None
            if machine.expert_bytes is None
            else np.full(self.trace.num_layers, size, np.int64),
            costs=machine.costs,
            experts_home=options["experts_home"],
            prefetch_budget=-1
            if options["prefetch_budget_bytes"] is None
            else options["prefetch_budget_bytes"],
            decision_ns=decision.ns,
            decision_beside=options["decisions"] == "beside",
            warm_passes=self._warm(case),
            seed=options["seed"],
        )
        return Engine(self._source(case.prefetch.needs), setup, look=self.look, future=self._future)

    def _decision(self, case: Case, slots: int) -> DecisionCost:
        if self.machine.costs is None:
            return DecisionCost(0, "none", "")
        if self.options["decisions"] == "free":
            found = DecisionCost(0, "stated", "decisions were declared free")
        else:
            found = decision_cost(case.policy, case.prefetch, slots)
        name = (
            case.policy.spec if case.prefetch.name == "none" else f"{case.policy.spec} + {case.prefetch.spec}"
        )
        self.decisions[f"{name} at {case.size.label}"] = {
            "value": found.ns, "unit": "ns per event", "kind": found.kind, "source": found.source,
        }  # fmt: skip
        return found

    def _warm(self, case: Case) -> int:
        """Passes left out at a capacity: the same for every policy, so that all count the same accesses."""
        if not self.options["warm"] or case.size.experts == 0:
            return 0
        label = case.size.label
        if label not in self.warm_passes:
            pools = split_capacity(case.size.experts, self.trace.num_layers, self.options["scope"])
            filled = self.look.filled_after(pools)
            if filled is None or filled >= self.passes.count:
                if case.policy.name != "unbounded":
                    self.warnings.append(
                        f"capacity {label} is never filled by this trace: counted cold in spite of --warm"
                    )
                filled = 0
            self.warm_passes[label] = filled
        return self.warm_passes[label]

    def run(self, case: Case) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        result = self.prepare(case).run(self.options["engine"])
        self.logical = max(self.logical, result.ledger.logical)
        return self._row(case, result), self._layer_rows(case, result)

    def _row(self, case: Case, result: RunResult) -> dict[str, Any]:
        ledger, times = result.ledger, result.totals
        warm = self._warm(case)
        tokens = output_tokens(self.passes, warm)
        moved = ledger.bytes_moved
        row: dict[str, Any] = {
            **_names(case),
            "capacity_experts": case.size.experts,
            "capacity_bytes": None
            if self.machine.expert_bytes is None
            else case.size.experts * self.machine.expert_bytes,
            "is_bound": case.policy.is_bound,
            "is_causal": not (case.policy.is_bound or case.policy.name == "static"),
            "logical": ledger.logical,
            "accesses": ledger.accesses,
            "hits": ledger.hits,
            "misses": ledger.misses,
            **ledger.misses_by_kind(),
            "hit_rate": ledger.hit_rate if ledger.accesses else None,
            "effective_miss_fraction": ledger.experts_moved / ledger.logical if ledger.logical else None,
            "evictions": ledger.evictions,
            "experts_moved": ledger.experts_moved,
            "bytes_moved": moved,
            "first_load_bytes": ledger.first_load_bytes,
            "bytes_per_output_token": moved / tokens if moved is not None and tokens else None,
            "prefetch_issued": ledger.prefetch_issued,
            "prefetch_used": ledger.prefetch_used,
            "prefetch_late": ledger.prefetch_late,
            "prefetch_wasted": ledger.prefetch_wasted,
            "prefetch_evicted_unused": ledger.prefetch_evicted_unused,
            "prefetch_refused": ledger.prefetch_refused,
            "bypasses": ledger.bypasses,
            "waves": ledger.waves,
        }
        timed: dict[str, float | None] = dict.fromkeys(
            (
                "ttft_s",
                "tpot_s",
                "makespan_s",
                "compute_busy_s",
                "link_busy_s",
                "storage_busy_s",
                "stall_s",
                "decision_s",
            )
        )
        if times is not None and result.pass_start_ns is not None and result.pass_end_ns is not None:
            of_requests = request_times(self.passes, result.pass_start_ns, result.pass_end_ns, warm)
            timed = {
                "ttft_s": of_requests.mean_ttft_s,
                "tpot_s": of_requests.mean_tpot_s,
                "makespan_s": times["makespan_ns"] / 1e9,
                "compute_busy_s": times["compute_busy_ns"] / 1e9,
                "link_busy_s": times["link_busy_ns"] / 1e9,
                "storage_busy_s": times["storage_busy_ns"] / 1e9
                if self.options["experts_home"] == "storage"
                else None,
                "stall_s": times["stall_ns"] / 1e9,
                "decision_s": times["host_busy_ns"] / 1e9,
            }
        return {
            **row,
            **timed,
            "withdrawn_bytes": times and times["withdrawn_bytes"],
            "engine": result.engine,
        }

    def _layer_rows(self, case: Case, result: RunResult) -> list[dict[str, Any]]:
        timed = result.totals is not None
        found = []
        for layer, (hits, late, collision, compulsory, capacity) in zip(
            self.trace.layer_ids_L.tolist(), result.layer_counts.tolist(), strict=True
        ):
            misses = late + collision + compulsory + capacity
            found.append(
                {
                    **_names(case),
                    "layer": layer,
                    "accesses": hits + misses,
                    "hits": hits,
                    "misses": misses,
                    "late": late if timed else None,
                    "collision": collision,
                    "compulsory": compulsory,
                    "capacity": capacity,
                }
            )
        return found

    def timeline(self, case: Case) -> dict[str, Any]:
        """A few passes of one case as segments, drawn by the event-driven engine."""
        return {
            **_names(case),
            "events": segments_of(self.prepare(case), self.passes, self.trace.layer_ids_L),
        }


def _names(case: Case) -> dict[str, str]:
    return {"policy": case.policy.spec, "prefetch": case.prefetch.spec, "capacity_label": case.size.label}


def _order(rows: Sequence[Mapping[str, Any]], *, has_times: bool) -> list[int]:
    """Bounds first; then by capacity; then by TPOT where times are known, else by misses; then by name."""

    def key(index: int) -> tuple[Any, ...]:
        row = rows[index]
        if row["is_bound"] and row["prefetch"] == "none":
            return (0, row["capacity_experts"] if row["policy"] != "unbounded" else -1, row["policy"], "")
        tpot = row["tpot_s"] if has_times and row["tpot_s"] is not None else 0.0
        return (1, row["capacity_experts"], tpot, row["misses"], row["policy"], row["prefetch"])

    return sorted(range(len(rows)), key=lambda index: tuple(map(_sortable, key(index))))


def _sortable(value: Any) -> tuple[int, Any]:
    return (1, value) if isinstance(value, str) else (0, value)


def _for_timeline(rows: Sequence[Mapping[str, Any]], cases: Sequence[Case], labels: Sequence[str]) -> Case:
    """The row that comes first among the user's own at the smallest capacity; a bound where there is no other."""
    own = [row for row in rows if not row["is_bound"] and row["capacity_label"] == labels[0]] or list(rows)
    wanted = {key: own[0][key] for key in ("policy", "prefetch", "capacity_label")}
    return next(case for case in cases if _names(case) == wanted)


def _loaded(trace: ExpertTrace | str | Path, format: str | None) -> tuple[ExpertTrace, Path | None]:
    if isinstance(trace, ExpertTrace):
        trace.check_ids()
        return trace, None
    path = Path(trace)
    from ..traces import read_trace

    loaded = read_trace(path, format=format)
    return loaded, path


def _trace_facts(trace: ExpertTrace, path: Path | None) -> dict[str, Any]:
    return {
        "path": None if path is None else path.name,
        "sha256": None if path is None else sha256_of(path),
        "model": trace.model,
        "source": trace.source,
        "licence": trace.licence,
        "synthetic": trace.synthetic,
        "tokens": trace.num_tokens,
        "layers": trace.num_layers,
        "layer_ids": trace.layer_ids_L.tolist(),
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
        "sequences": trace.num_sequences,
    }


def _version() -> str:
    from .. import __version__

    return __version__
