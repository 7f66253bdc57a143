"""The step loop: passes through a real decoder whose experts come and go as the decisions say.

    weights + tier ─► Runtime.run(source, setup) ─► RunRecord

One event: attention and router run, experts are known, `decisions` decide, copies are asked for, members compute as they
are there (hits in ascending id, then misses as they land), and the layer ends. `docs/engine.md` says the same of the
simulated machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import RunError, UsageError
from ...sim.blocks import Block, BlockSource
from ...sim.cache.ledger import HIT
from ...sim.engines.run import Setup
from ...sim.ffn import MoeFfn
from ...sim.model import ModelSpec
from .copies import DEMAND, PREFETCH, Copies
from .cores import computing, copy_core
from .cpu_layers import layers_for
from .decisions import Decision, Decisions
from .kv import KvCache, PassRows
from .layers import Layers, Pairs, pairs_of
from .record import AFTER, BEFORE, DECIDE, EXPERTS, RESIDENT, STALL, RunRecord
from .routing import LiveRouting, check_live, forced_weights
from .tiers import Tier, aligned_bytes
from .weights import ALIGNMENT_BYTES, Weights

_now = time.perf_counter_ns
OnPass = Callable[[int], None]


class Runtime:
    """A decoder with its experts in a tier. A context manager: leaving it closes the tier, whatever happened."""

    def __init__(self, model: ModelSpec, weights: Weights, tier: Tier, *, limit_s: float = 30.0) -> None:
        """`limit_s` bounds every wait for an expert."""
        if limit_s <= 0:
            raise UsageError(f"the time limit of a wait must be above 0, got {limit_s}")
        self.model, self.weights, self.tier, self.limit_s = model, weights, tier, limit_s
        self._rows: list[Tensor] = []
        self.gated = [layer.ffn is None or layer.ffn.gated for layer in model.layers]
        self.last_moe = max(i for i, layer in enumerate(model.layers) if isinstance(layer.ffn, MoeFfn))

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.tier.close()

    def slot_rows(self, count: int) -> list[Tensor]:
        """`count` rows of device memory, kept for the next run: making pages takes longer than a short run."""
        if len(self._rows) < count:
            size, device = self.weights.shape.row_bytes, self.weights.device
            if device == "cpu":
                memory = aligned_bytes(count * size)
                memory[::ALIGNMENT_BYTES] = 0  # pages are made now, not in the middle of a copy
                self._rows = list(torch.from_numpy(memory).view(count, size))
            else:
                self._rows = list(torch.zeros(count, size, dtype=torch.uint8, device=device))
        return self._rows[:count]

    def run(
        self, source: BlockSource, setup: Setup, *, live: bool = False, seed: int = 0, check: bool = False,
        on_pass: OnPass | None = None,
    ) -> RunRecord:  # fmt: skip
        """Run the whole trace. Forced: its experts, its token ids or drawn ones. `live`: only its rows and passes count.

        `check` compares every slot with what should be in it before it is computed (slow). Raises `UsageError` where the
        trace does not fit the model or the setup needs what is not known, `RunError` where the tier fails or does not answer.
        """
        return _Run(self, source, setup, live, seed, check).run(on_pass)


class _Run:
    """One run's state."""

    def __init__(
        self, runtime: Runtime, source: BlockSource, setup: Setup, live: bool, seed: int, check: bool
    ) -> None:
        self.runtime, self.source, self.check, self.limit_s = runtime, source, check, runtime.limit_s
        weights, trace = runtime.weights, source.trace
        shape = (weights.moe_layers, weights.num_experts)
        if (trace.num_layers, trace.num_experts) != shape:
            raise UsageError(
                f"the model has {shape[0]} MoE layers × {shape[1]} experts, the trace {trace.num_layers} × {trace.num_experts}"
            )
        if live:
            check_live(setup)
        self.live = LiveRouting(trace) if live else None
        self.decisions = Decisions(source, setup)
        lengths = np.diff(np.r_[trace.sequence_start_S, trace.num_tokens])
        self.layers: Layers = layers_for(weights.device)(
            weights, KvCache(weights, lengths), int(lengths.max())
        )
        self.rows = runtime.slot_rows(self.decisions.slots + self.decisions.staging)
        self.views = [self.layers.slot_views(row) for row in self.rows]
        passes = source.passes
        self.pass_rows = [
            self.layers.kv.rows_of(
                passes.sequence_of_row[low:high], passes.context[low:high].astype(np.int64) - 1
            )
            for low, high in zip(passes.start[:-1], passes.start[1:], strict=True)
        ]
        drawn = np.random.default_rng(seed).integers(0, len(weights.embedding_VD), trace.num_tokens)
        known = (
            drawn
            if trace.token_ids_T is None
            else trace.token_ids_T.astype(np.int64) % len(weights.embedding_VD)
        )
        self.tokens_T = torch.from_numpy(np.ascontiguousarray(known, np.int64)).to(weights.device)
        self.next_token: dict[int, Tensor] = {}
        self.part = np.zeros((6, passes.count, trace.num_layers), np.int64)
        self.known, self.end = np.zeros((2, passes.count, trace.num_layers), np.int64)
        self.of_pass = np.zeros((2, passes.count), np.int64)
        self.expert_tokens: list[int] = []
        self.expert_ns: list[int] = []
        self.expert_ids: list[int] = []
        self.stall_spans: list[tuple[int, int]] = []
        self.log: list[Decision] = []

    def run(self, on_pass: OnPass | None) -> RunRecord:
        cpu = self.runtime.weights.device == "cpu"
        places = [row.numpy() for row in self.rows] if cpu else self.rows
        copies = self.copies = Copies(self.runtime.tier, places, limit_s=self.limit_s, core=copy_core())
        try:
            with torch.inference_mode(), computing():
                self._load_first()
                self.began = _now()
                for block, index in self.decisions.passes():
                    self._one_pass(block, index)
                    if on_pass is not None:
                        on_pass(block.first_pass + index)
                copies.drain()
        finally:
            copies.close()
        ledger, of_layers = self.decisions.ledger()
        return RunRecord(
            ledger, of_layers, self.of_pass[0], self.of_pass[1], self.part, self.known, self.end,
            np.array(self.expert_tokens, np.int64), np.array(self.expert_ns, np.int64),
            np.array(self.expert_ids, np.int64), tuple(copies.done), self.began,
            np.array(self.stall_spans, np.int64).reshape(-1, 2), copies.withdrawn, tuple(self.log),
            None if self.live is None else self.live.trace_of(self.source.trace),
        )  # fmt: skip

    def _load_first(self) -> None:
        """A static set is in place before the clock starts."""
        for slot, expert in self.decisions.first_load():
            with self.copies.together():
                self.copies.request(slot, expert, DEMAND)
        self.copies.drain()
        self.copies.done.clear()

    # -- a pass -----------------------------------------------------------------------------------------------------

    def _one_pass(self, block: Block, index: int) -> None:
        number = block.first_pass + index
        passes, rows = self.source.passes, self.pass_rows[number]
        low, high = int(passes.start[number]), int(passes.start[number + 1])
        sequence = passes.sequence_of_row[low:high]
        of_trace = passes.rows[low:high]
        first, last = int(block.start[index]), int(block.start[index + 1])
        if self.live is not None:
            self.live.begin_pass(block, first, last, sequence)
        self.of_pass[0, number] = mark = _now() - self.began
        x = self.layers.embed(self._tokens(of_trace, sequence))
        for layer_index, layer in enumerate(self.runtime.weights.layers):
            x = self.layers.mix(layer_index, x, rows)
            if layer.moe_index is None:
                x = self.layers.dense(layer, x, self.runtime.gated[layer_index])
                continue
            moe = layer.moe_index
            normed = self.layers.norm(x, layer.norm_ffn_D)
            assert layer.router_ND is not None
            pairs = self._route(block, first, last, of_trace, moe, normed, layer.router_ND)
            arrived = _now() - self.began
            self.part[BEFORE, number, moe] = arrived - mark
            resident = layer.ffn_in_ID is not None
            x, computed = self._event(
                block, index, moe, x, normed, pairs, layer_index if resident else None, arrived
            )
            if layer_index == self.runtime.last_moe:
                x = self._trailing(layer_index + 1, x, rows, sequence)
            mark = _now() - self.began
            self.part[AFTER, number, moe] = mark - computed
            self.end[number, moe] = mark
            if layer_index == self.runtime.last_moe:
                break
        if self.live is not None:
            self.live.end_pass(block, first, sequence)
        self.of_pass[1, number] = _now() - self.began

    def _tokens(self, of_trace: NDArray[np.int64], sequence: NDArray[np.integer]) -> Tensor:
        tokens = self.tokens_T[torch.from_numpy(of_trace)]
        if self.live is not None:
            prefill = self.source.trace.is_prefill_T
            for row, (where, who) in enumerate(zip(of_trace.tolist(), sequence.tolist(), strict=True)):
                if who in self.next_token and (prefill is None or not prefill[where]):
                    tokens[row] = self.next_token[who]
        return tokens

    def _trailing(self, layer_index: int, x: Tensor, rows: PassRows, sequence: NDArray[np.integer]) -> Tensor:
        """Layers after the last MoE layer, then the head: the next token of each sequence."""
        for later in range(layer_index, len(self.runtime.weights.layers)):
            x = self.layers.mix(later, x, rows)
            x = self.layers.dense(self.runtime.weights.layers[later], x, self.runtime.gated[later])
        following = self.layers.head(x, rows)
        if self.live is not None:
            for row, token in zip(rows.last_R.tolist(), following, strict=True):
                self.next_token[int(sequence[row])] = token
        return x

    def _route(
        self,
        block: Block,
        first: int,
        last: int,
        of_trace: NDArray[np.int64],
        moe: int,
        normed: Tensor,
        router: Tensor,
    ) -> Pairs:
        logits = self.layers.router_logits(normed, router)
        if self.live is None:
            ids = block.experts[first:last, moe]
            return pairs_of(ids, forced_weights(logits, ids))
        weights, chosen = self.layers.top_k(logits, self.runtime.weights.top_k)
        found = chosen.cpu().numpy()
        self.live.chose(block, first, last, of_trace, moe, found)
        self.live.guess(block, first, last, of_trace, moe, self.layers, normed)
        return pairs_of(found, weights.cpu().numpy())

    # -- an event ---------------------------------------------------------------------------------------------------

    def _event(
        self,
        block: Block,
        index: int,
        moe: int,
        x: Tensor,
        normed: Tensor,
        pairs: Pairs,
        resident: int | None,
        arrived: int,
    ) -> tuple[Tensor, int]:
        """The experts of one layer for one pass; the new x, and when the last of them was computed."""
        number = block.first_pass + index
        decision = self.decisions.decide(block, index, moe)
        self.log.append(decision)
        if len(decision.experts) != len(pairs.experts_S):
            raise RuntimeError(
                f"{len(decision.experts)} members decided, {len(pairs.experts_S)} experts routed"
            )
        ready, waiting, follower = self._issue(decision, moe)
        self.layers.begin_experts(normed)
        known = _now() - self.began
        self.known[number, moe] = known
        self.part[DECIDE, number, moe] = known - arrived
        if resident is not None:
            layer = self.runtime.weights.layers[resident]
            assert layer.ffn_in_ID is not None
            assert layer.ffn_out_DM is not None
            x = x + self.layers.feed_forward(
                normed, layer.ffn_in_ID, layer.ffn_out_DM, self.runtime.gated[resident]
            )
        mark = _now() - self.began
        self.part[RESIDENT, number, moe] = mark - known
        left, head, stall = len(decision.experts), 0, 0
        experts = 0
        while left:
            if head == len(ready):
                landings = self.copies.wait()
                mark, before = _now() - self.began, mark
                stall += mark - before
                self.stall_spans.append((before, mark))
            else:
                landings = self.copies.landings() if waiting else []
            for place, expert in landings:
                member = waiting.get(place)
                if member is not None and decision.experts[member] == expert:
                    del waiting[place]
                    ready.append(member)
            if head == len(ready):
                continue
            member = ready[head]
            head, left = head + 1, left - 1
            self._compute(decision, pairs, member)
            if member in follower:
                self._ask(decision, follower[member], waiting)
            mark, before = _now() - self.began, mark
            experts += mark - before
            self.expert_tokens.append(int(pairs.ends_S[member] - pairs.starts_S[member]))
            self.expert_ns.append(mark - before)
            self.expert_ids.append(decision.experts[member])
        self.part[STALL, number, moe], self.part[EXPERTS, number, moe] = stall, experts
        return x + self.layers.experts_sum(), mark

    def _issue(self, decision: Decision, moe: int) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """Decisions take effect: late members are promoted, misses ask for copies, then prefetches.

        Returns the members that are there, {place: member that waits for a landing}, {member: whose copy may start after it}.
        """
        ready: list[int] = []
        waiting: dict[int, int] = {}
        follower: dict[int, int] = {}
        copies = self.copies
        with copies.together():
            for member, (expert, kind, place) in enumerate(
                zip(decision.experts, decision.kinds, decision.places, strict=True)
            ):
                if kind == HIT and not copies.is_under_way(place, expert):
                    ready.append(member)
                elif kind == HIT:
                    self.decisions.mark_late(moe)
                    copies.promote(place)
                    waiting[place] = member
            for member, wait in enumerate(decision.waits):
                if wait >= 0:
                    follower[wait] = member
                elif decision.kinds[member] != HIT:
                    copies.request(decision.places[member], decision.experts[member], DEMAND)
                    waiting[decision.places[member]] = member
            for expert, place in zip(decision.fetched, decision.fetch_places, strict=True):
                copies.request(place, expert, PREFETCH)
        return ready, waiting, follower

    def _ask(self, decision: Decision, member: int, waiting: dict[int, int]) -> None:
        """A place is free now: the copy that waited for it starts."""
        with self.copies.together():
            self.copies.request(decision.places[member], decision.experts[member], DEMAND)
        waiting[decision.places[member]] = member

    def _compute(self, decision: Decision, pairs: Pairs, member: int) -> None:
        place = decision.places[member]
        if self.check:
            expert = decision.experts[member]
            right = self.runtime.weights.expert_row(expert)
            if not np.array_equal(self.rows[place].cpu().numpy(), right):
                raise RunError(f"slot {place} does not hold expert {expert} when it is to be computed")
        self.layers.add_expert(self.views[place], pairs, member)
        if self.rows[place].is_cuda:
            torch.cuda.synchronize()  # a slot may be given away as soon as this returns
