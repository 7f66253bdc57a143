"""The cases of a replay, one engine each, over what they share: survey, next uses, blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.blocks import BlockSource
from ..sim.cache.misses import MissPolicy, miss_policy
from ..sim.capacity_split import split_capacity
from ..sim.decisions import DecisionCost, decision_cost
from ..sim.engines.run import Engine, RunResult, Setup
from ..sim.engines.survey import NextUses, Survey, access_sequence, next_uses, survey
from ..sim.fitted_quotas import fitted_quotas, layer_curves
from ..sim.passes import Passes
from ..sim.request_times import output_tokens, request_times
from ..traces.expert_trace import ExpertTrace
from .cases import Case
from .machine import Machine
from .timeline import segments_of


class Runs:
    """Runs cases over one trace; what they share (survey, next uses, blocks) is made once."""

    def __init__(
        self, trace: ExpertTrace, passes: Passes, machine: Machine, options: Mapping[str, Any]
    ) -> None:
        self.trace, self.passes, self.machine, self.options = trace, passes, machine, options
        self._sources: dict[tuple[bool, bool], BlockSource] = {}
        self.training_passes = _training_passes(options["train_share"], passes.count)
        self.look: Survey = survey(self._source("none"), self.training_passes)
        self._layer_loads: NDArray[np.int64] | None = None
        self._future: NextUses | None = None
        self.logical = 0
        self.warm_passes: dict[str, int] = {}
        self.decisions: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []

    @property
    def miss(self) -> MissPolicy:
        """What a miss does. Raises `UsageError` for `host` on a machine whose sheet does not state its cores."""
        found = miss_policy(self.options.get("miss", "load"))
        if found.name == "host" and self.machine.costs is not None and self.machine.host_expert_ns_CN is None:
            name = (self.machine.hardware_facts or {}).get("name")
            raise UsageError(f"miss host: the sheet of {name} has no [host_cores], so what they take is unknown")
        return found

    def _miss_of(self, case: Case) -> MissPolicy:
        """A bound that loses nothing says more than one that does: lossy ways are not for bounds."""
        return miss_policy("load") if case.policy.is_bound and self.miss.is_lossy else self.miss

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
        pools = self.pools(case.size.experts)
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
            miss=self._miss_of(case),
            host_expert_ns_CN=self.machine.host_expert_ns_CN if self.miss.name == "host" else None,
            seed=options["seed"],
        )
        return Engine(self._source(case.prefetch.needs), setup, look=self.look, future=self._future)

    def pools(self, experts: int) -> NDArray[np.int64]:
        """A capacity as pools: one, or one a layer. Raises `UsageError` for fitted quotas where nothing trains."""
        trace, scope = self.trace, self.options["scope"]
        if scope != "fitted":
            return split_capacity(experts, trace.num_layers, scope)
        if not self.training_passes:
            raise UsageError("scope fitted fits its quotas on the part of the trace that trains: give a train share")
        if self._layer_loads is None:
            trained = int(self.look.union_PL[: self.training_passes].sum(dtype=np.int64))
            ids = access_sequence(self._source("none"), self.look.accesses)[:trained]
            self._layer_loads = layer_curves(ids, trace.num_layers, trace.num_experts)
        return fitted_quotas(self._layer_loads, experts, min(trace.top_k, experts // trace.num_layers))

    def _decision(self, case: Case, slots: int) -> DecisionCost:
        if self.machine.costs is None:
            return DecisionCost(0, "none", "")
        if self.options["decisions"] == "free":
            found = DecisionCost(0, "stated", "decisions were declared free")
        else:
            found = decision_cost(case.policy, case.prefetch, slots, self._miss_of(case))
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
            return self.training_passes
        label = case.size.label
        if label not in self.warm_passes:
            filled = self.look.filled_after(self.pools(case.size.experts))
            if filled is None or filled >= self.passes.count:
                if case.policy.name != "unbounded":
                    self.warnings.append(
                        f"capacity {label} is never filled by this trace: counted cold in spite of --warm"
                    )
                filled = 0
            self.warm_passes[label] = max(filled, self.training_passes)
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
            **names_of(case),
            "capacity_experts": case.size.experts,
            "capacity_bytes": None
            if self.machine.expert_bytes is None
            else case.size.experts * self.machine.expert_bytes,
            "is_bound": case.policy.is_bound,
            "is_causal": not case.policy.is_bound
            and (case.policy.name != "static" or case.policy.setting("fit") == "train"),
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
            **self._of_misses(case, result),
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

    def _of_misses(self, case: Case, result: RunResult) -> dict[str, Any]:
        """What a miss policy other than waiting did; a share of the gate weight where it changed the output."""
        miss, ledger = self._miss_of(case), result.ledger
        if self.miss.name == "load":
            return {}
        counts = {name: getattr(ledger, name) for name in ("computed_on_host", "lowered", "substituted", "skipped")}
        shares = [ledger.weight_share(what) for what in ("lowered", "substituted", "skipped")]
        lossy = sum(share for share in shares if share is not None) if miss.is_lossy else None
        return {"miss": miss.spec, **counts, "lossy_weight_share": lossy}

    def _layer_rows(self, case: Case, result: RunResult) -> list[dict[str, Any]]:
        timed = result.totals is not None
        found = []
        for layer, (hits, late, collision, compulsory, capacity) in zip(
            self.trace.layer_ids_L.tolist(), result.layer_counts.tolist(), strict=True
        ):
            misses = late + collision + compulsory + capacity
            found.append(
                {
                    **names_of(case),
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
            **names_of(case),
            "events": segments_of(self.prepare(case), self.passes, self.trace.layer_ids_L),
        }


def names_of(case: Case) -> dict[str, str]:
    return {"policy": case.policy.spec, "prefetch": case.prefetch.spec, "capacity_label": case.size.label}


def _training_passes(share: float, passes: int) -> int:
    """Raises `UsageError` for a share that leaves nothing to train on, or nothing to judge."""
    if not 0 <= share < 1:
        raise UsageError(f"the train share must be at least 0 and below 1, got {share:g}")
    found = int(share * passes)
    if share > 0 and found == 0:
        raise UsageError(f"a train share of {share:g} is no whole pass of the trace's {passes}: give more")
    return found
