"""One replay: a trace through one policy, one prefetcher and one machine, on either engine.

    source (trace in blocks) ─► Engine.prepare(setup) ─► run ─► RunResult (ledger, per-layer counts, times)

The machine's rules are written in `docs/engine.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown_name
from ..blocks import Block, BlockSource
from ..cache import ledger as k
from ..cache.core import CONTRACTS, FUSED, SLOTS, load_first
from ..cache.history import new_history
from ..cache.miss_host import host_table
from ..cache.miss_switch import HOST, LOWER, SUBSTITUTE
from ..cache.misses import MissPolicy, miss_policy
from ..cache.plan import new_plan
from ..cache.registry import Policy
from ..cache.sequences import NOBODY, POLICY, PREFETCHER, new_sequences
from ..cache.state import NEXT_USE, PRIORITY, SLOT, UNUSED_PREFETCH, new_state
from ..cache.switch import STATIC
from ..costs import CostTable
from ..prefetch.expert_map import new_maps
from ..prefetch.registry import Prefetcher, prefetcher
from ..prefetch.request import new_wanted
from . import fast
from .counting import Rules, count_block
from .link import FAR, LINK_BUSY, STORAGE_BUSY, UNTIL, WITHDRAWN, WITHDRAWN_BYTES, lower_copy, new_path
from .reference import DecodeLoop
from .reference_copies import OnSegment
from .survey import NextUses, Survey, next_uses, survey

ENGINES = ("numba", "simpy")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is asked to do, apart from the trace."""

    policy: Policy
    capacity_per_pool: NDArray[np.int64]
    """One entry (one pool over all layers) or one a layer, in the unit of `size_per_layer`."""
    prefetch: Prefetcher = field(default_factory=lambda: prefetcher("none"))
    miss: MissPolicy = field(default_factory=lambda: miss_policy("load"))
    contract: str = "slots"
    size_per_layer: NDArray[np.int64] | None = None
    """Bytes of one expert of each layer; None: every expert is one unit and no bytes are known."""
    costs: CostTable | None = None
    """None: count only."""
    host_expert_ns_CN: NDArray[np.int64] | None = None
    """[C, N + 1] one routed expert for n tokens of the pass on the host cores; `host` needs it where times are asked for."""
    experts_home: str = "host"
    """Where experts that are not on the device live: `host`, or `storage` behind the host."""
    prefetch_budget: int = -1
    """Bytes (or units) a prefetcher may ask for in one event; −1: no limit."""
    decision_ns: int = 0
    decision_beside: bool = False
    """Decisions run beside the compute stream instead of in series with it."""
    warm_passes: int = 0
    """Passes that fill the cache and are left out of the counts."""
    seed: int = 0
    record_events: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a run found. Times are None in a run that only counts."""

    ledger: k.Ledger
    layer_counts: NDArray[np.int64]
    """[L, 5] hits, late, collision, compulsory and capacity misses of each layer."""
    pass_hits: NDArray[np.int64]
    """[P] of every pass, those of the warm-up included."""
    pass_start_ns: NDArray[np.int64] | None
    pass_end_ns: NDArray[np.int64] | None
    layer_stall_ns: NDArray[np.int64] | None
    """[L] time in which a layer waited for experts."""
    totals: dict[str, int] | None
    """makespan_ns, compute_busy_ns, link_busy_ns, storage_busy_ns, host_busy_ns, stall_ns, withdrawn, withdrawn_bytes."""
    events: dict[str, NDArray[np.int64]] | None
    engine: str


class Engine:
    """A prepared run: state, plan, rules and (if timed) machine. Used once."""

    def __init__(
        self, source: BlockSource, setup: Setup, *, look: Survey | None = None, future: NextUses | None = None
    ) -> None:
        """`look` and `future` may be given so that many runs over one trace share them."""
        self.source, self.setup = source, setup
        self._check()
        if self._weighs:
            self.source = source.weighed()
        trace = source.trace
        layers, experts = trace.num_layers, trace.num_experts
        contract = CONTRACTS[setup.contract]
        rng = np.random.default_rng(setup.seed)
        self.sizes = setup.size_per_layer if setup.size_per_layer is not None else np.ones(layers, np.int64)
        self.state = new_state(
            num_layers=layers,
            num_experts=experts,
            capacity_per_pool=setup.capacity_per_pool,
            size_per_layer=self.sizes,
            parameters=setup.policy.parameters,
            rng=rng,
        )
        slots = self.state.slot.shape[1]
        fetches = self._most_fetched(layers * experts)
        self.plan = new_plan(experts, fetches, slots)
        self.wanted = new_wanted(layers * experts, experts)
        staging = {SLOTS: trace.top_k, FUSED: experts}.get(contract, 1)
        by_sequence = setup.prefetch.name == "activation"
        by_layer = setup.prefetch.name in ("coactivation", "hot")
        follows = POLICY if setup.policy.needs == "sequences" else PREFETCHER if by_sequence else NOBODY
        at_once = int(source.passes.logit_rows().max())
        self.rules = Rules(
            policy=setup.policy.code,
            contract=contract,
            sort=setup.contract != "access",
            num_experts=experts,
            prefetch=setup.prefetch.code,
            whole=setup.prefetch.whole_parameters(setup.seed),
            real=setup.prefetch.real_parameters(),
            staging=staging,
            budget=setup.prefetch_budget,
            miss=setup.miss.code,
            miss_limit=setup.miss.limit,
            miss_table=self._miss_table(),
            weighs=self._weighs,
            learns=by_layer or setup.miss.code == SUBSTITUTE,
            history=new_history(layers, experts, together=setup.miss.code == SUBSTITUTE, follows=by_layer),
            follows=follows,
            sequences=new_sequences(at_once if follows != NOBODY else 0, layers * experts, remember=by_sequence),
            maps=new_maps(at_once if setup.prefetch.name == "map" else 0, layers, trace.top_k),
        )
        self.counts = np.zeros(k.COUNTS, np.int64)
        self.layer_counts = np.zeros((layers, 5), np.int64)
        self.of_pass = np.zeros((3, source.passes.count), np.int64)
        self.look = look
        self._first_loaded = 0
        self.future = self._future(future)
        if setup.policy.code == STATIC:
            self._load_static_set()
        if setup.costs is not None:
            self._prepare_machine(setup.costs, slots + staging, experts)

    @property
    def _weighs(self) -> bool:
        return self.setup.miss.needs_weights or self.setup.policy.needs == "weights"

    def _check(self) -> None:
        setup, trace = self.setup, self.source.trace
        if setup.contract not in CONTRACTS:
            raise unknown_name("contract", setup.contract, CONTRACTS)
        if setup.experts_home not in ("host", "storage"):
            raise unknown_name("home of experts", setup.experts_home, ("host", "storage"))
        if len(setup.capacity_per_pool) not in (1, trace.num_layers):
            raise RuntimeError(
                f"expected capacities of 1 or {trace.num_layers} pools, got {len(setup.capacity_per_pool)}"
            )
        if not self.source.supplies(setup.prefetch.needs):
            raise RuntimeError(
                f"prefetch {setup.prefetch.spec!r} needs {setup.prefetch.needs}, and the blocks were made without"
            )
        if setup.prefetch.needs == "predicted":
            guesses = trace.predicted_TLHM
            if guesses is None:
                raise UsageError(
                    f"prefetch {setup.prefetch.spec!r} needs the gates' guesses, and this trace has none"
                )
            if setup.prefetch.ahead > guesses.shape[2]:
                raise UsageError(
                    f"prefetch {setup.prefetch.spec!r} looks {setup.prefetch.ahead} layers ahead, "
                    f"and this trace holds guesses for {guesses.shape[2]}"
                )
            if setup.prefetch.setting("score") != "0" and trace.predicted_scores_TLHM is None:
                raise UsageError(
                    f"prefetch {setup.prefetch.spec!r} needs scores, and this trace has guesses without them"
                )
        self._check_miss()
        if setup.prefetch.ahead >= max(2, trace.num_layers):
            raise UsageError(
                f"prefetch {setup.prefetch.spec!r}: ahead must stay below the trace's {trace.num_layers} layers"
            )

    def _check_miss(self) -> None:
        setup, miss = self.setup, self.setup.miss
        if miss.name != "load" and setup.contract == "access":
            raise UsageError(
                f"miss policy {miss.spec!r} needs a machine that serves an event's misses together: contract slots or "
                "fused, not access"
            )
        if self._weighs and self.source.trace.weights_TLK is None:
            who = f"miss policy {miss.spec!r}" if miss.needs_weights else f"policy {setup.policy.spec!r}"
            raise UsageError(f"{who} needs gate weights, and this trace has none")
        if miss.code != HOST:
            return
        host = setup.host_expert_ns_CN
        if setup.costs is None and miss.setting("when") == "cheaper":
            raise UsageError(
                "miss policy 'host' compares times, and nothing is known of them: give host:when=always"
            )
        if setup.costs is not None and (host is None or host.shape != setup.costs.expert_ns_CN.shape):
            raise UsageError(
                f"miss policy {miss.spec!r} needs the time of one expert on the host cores, for every cost class "
                f"and {setup.costs.expert_ns_CN.shape[1] - 1} tokens"
            )

    def _miss_table(self) -> NDArray[np.int64]:
        """What the miss policy knows of costs: where the host computes, or the bytes of a lower-precision copy."""
        setup, costs = self.setup, self.setup.costs
        if setup.miss.code == LOWER:
            return lower_copy(self.sizes, float(setup.miss.setting("share")))[:, None]
        if setup.miss.code != HOST:
            return np.zeros((1, 1), np.int64)
        if costs is None:
            most = int(self.source.passes.tokens().max())
            return np.ones((self.source.trace.num_layers, most + 1), np.int64)
        assert setup.host_expert_ns_CN is not None
        kind = costs.layer_class_L
        copy_ns = costs.copy_ns_C + (costs.storage_ns_C if setup.experts_home == "storage" else 0)
        return host_table(
            setup.miss.setting("when"), setup.host_expert_ns_CN[kind], costs.expert_ns_CN[kind], copy_ns[kind]
        )

    def _most_fetched(self, all_experts: int) -> int:
        prefetch = self.setup.prefetch
        if prefetch.name == "none":
            return 0
        return min(
            all_experts, self.source.trace.num_experts * (prefetch.ahead if prefetch.looks_at_each else 1)
        )

    def _future(self, future: NextUses | None) -> NDArray[np.int32]:
        if not self.setup.policy.needs_future:
            self.state.when[PRIORITY] = 0
            return np.zeros(0, np.int32)
        if future is None:
            self.look = self.look or survey(self.source)
            future = next_uses(self.source, self.look.accesses, by_access=self.setup.contract == "access")
        self.state.when[NEXT_USE] = future.first
        return future.uses_A

    def _load_static_set(self) -> None:
        """Fill each pool with its most used experts; ties to the smaller layer, then expert id."""
        self.look = self.look or survey(self.source)
        fits = {"all": self.look.uses, "first-half": self.look.uses_first_half, "train": self.look.uses_training}
        uses = fits[self.setup.policy.setting("fit")]
        if uses is None:
            raise UsageError(f"{self.setup.policy.spec!r} is fitted on the part of the trace that trains: give a train share")
        order = np.lexsort((np.arange(len(uses)), -uses))
        self._first_loaded += load_first(STATIC, self.state, order[uses[order] > 0], self.counts)

    def _prepare_machine(self, costs: CostTable, places: int, experts: int) -> None:
        layers, passes = self.source.trace.num_layers, self.source.passes.count
        if costs.num_layers != layers or costs.num_passes != passes:
            raise RuntimeError(
                f"the cost table is for {costs.num_passes} passes × {costs.num_layers} layers, "
                f"the trace has {passes} × {layers}"
            )
        link_ns = costs.copy_ns_C[costs.layer_class_L]
        storage_ns = costs.storage_ns_C[costs.layer_class_L] if self.setup.experts_home == "storage" else None
        if int(link_ns.min()) < 1 or (storage_ns is not None and int(storage_ns.min()) < 1):
            raise RuntimeError("the cost table has a copy that takes no time")
        miss = self.setup.miss
        share = float(miss.setting("share")) if miss.code == LOWER else 1.0
        self.path = new_path(places, costs.copy_engines, link_ns, storage_ns, self.sizes, share)
        self.machine = fast.Machine(
            layer_class=costs.layer_class_L,
            pass_ns=np.stack([costs.before_ns_PC, costs.resident_ns_PC, costs.after_ns_PC]),
            expert_ns=costs.expert_ns_CN,
            host_ns=self.setup.host_expert_ns_CN
            if self.setup.host_expert_ns_CN is not None and miss.code == HOST
            else np.zeros((1, 0), np.int64),
            may_not_load=miss.name != "load",
            decision_ns=self.setup.decision_ns,
            decision_beside=self.setup.decision_beside,
            order=np.full((2, experts), -1, np.int32),
            time=np.zeros(5, np.int64),
        )
        events = passes * layers if self.setup.record_events else 0
        self.record = fast.Record(
            self.of_pass, np.zeros(layers, np.int64), np.zeros((4, events), np.int64)
        )

    def run(
        self,
        engine: str = "numba",
        *,
        on_segment: OnSegment | None = None,
        progress: Callable[[int], None] | None = None,
        stop_after: int | None = None,
    ) -> RunResult:
        """Replay the whole trace, or its first `stop_after` passes. `progress` is told the passes done."""
        if engine not in ENGINES:
            raise unknown_name("engine", engine, ENGINES)
        run_block = self._runner(engine, on_segment)
        warm, future, used = self.setup.warm_passes, self.future, 0
        before = self.counts * 0, self.layer_counts * 0
        for block in self.source:
            for part in _parts(block, warm, stop_after):
                if part.first_pass + part.begin == warm and warm:
                    before = self.counts.copy(), self.layer_counts.copy()
                    before[0][k.MOVED] -= self._first_loaded  # a first load is no part of the warm-up
                    before[0][k.FIRST_LOAD_BYTES] = 0
                used += run_block(part, future[used:])
            if progress is not None:
                progress(block.first_pass + block.passes)
            if stop_after is not None and block.first_pass + block.passes >= stop_after:
                break
        return self._result(engine, before)

    def _runner(self, engine: str, on_segment: OnSegment | None) -> Callable[[Block, Any], int]:
        if self.setup.costs is None:
            return lambda block, future: count_block(
                self.rules, self.state, self.plan, self.wanted, block, future, self.counts, self.layer_counts,
                self.of_pass[fast.HITS_OF_PASS],
            )  # fmt: skip
        if engine == "simpy":
            return DecodeLoop(self, on_segment).run_block
        return lambda block, future: fast.time_block(
            self.rules, self.machine, self.path, self.state, self.plan, self.wanted, block, future, self.counts,
            self.layer_counts, self.record,
        )  # fmt: skip

    def _result(self, engine: str, before: tuple[NDArray[np.int64], NDArray[np.int64]]) -> RunResult:
        resident, unused = (int(np.count_nonzero(self.state.expert[row])) for row in (SLOT, UNUSED_PREFETCH))
        k.check_conservation(self.counts, resident, unused)
        timed = self.setup.costs is not None
        ledger = k.make_ledger(
            self.counts - before[0], unused, timed=timed, sized=self.setup.size_per_layer is not None
        )
        layer_counts, pass_hits = self.layer_counts - before[1], self.of_pass[fast.HITS_OF_PASS]
        if not timed:
            return RunResult(ledger, layer_counts, pass_hits, None, None, None, None, None, "count")
        time, total = self.machine.time, self.path.total
        totals = {
            "makespan_ns": int(time[fast.NOW]),
            "compute_busy_ns": int(time[fast.COMPUTE_BUSY]),
            "host_busy_ns": int(time[fast.HOST_BUSY]),
            "stall_ns": int(time[fast.STALL]),
            "link_busy_ns": int(total[LINK_BUSY])
            - _beyond(self.path.server[UNTIL, :-1], int(time[fast.NOW])),
            "storage_busy_ns": int(total[STORAGE_BUSY])
            - _beyond(self.path.server[UNTIL, -1:], int(time[fast.NOW])),
            "withdrawn": int(total[WITHDRAWN]),
            "withdrawn_bytes": int(total[WITHDRAWN_BYTES]),
        }
        record = self.record
        events = None
        if self.setup.record_events:
            events = dict(zip(("known", "end", "hits", "late"), record.event, strict=True))
        return RunResult(
            ledger,
            layer_counts,
            pass_hits,
            record.of_pass[fast.START_OF_PASS],
            record.of_pass[fast.END_OF_PASS],
            record.layer_stall,
            totals,
            events,
            engine,
        )


def _beyond(until: NDArray[np.int64], end: int) -> int:
    """What copies still in flight at the end take after it: busy time counts up to the end only."""
    return int((until[until < FAR] - end).sum())


def _parts(block: Block, warm: int, stop_after: int | None) -> list[Block]:
    """The block, cut where the warm-up ends and where the run is to stop."""
    end = block.passes if stop_after is None else min(block.passes, stop_after - block.first_pass)
    cut = warm - block.first_pass
    if 0 < cut < end:
        return [block._replace(passes=cut), block._replace(begin=cut, passes=end)]
    return [block._replace(passes=end)]


def run(
    source: BlockSource,
    setup: Setup,
    *,
    engine: str = "numba",
    look: Survey | None = None,
    future: NextUses | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Replay `source` under `setup`. Raises `UsageError` where the trace lacks what the setup needs."""
    return Engine(source, setup, look=look, future=future).run(engine, progress=progress)
