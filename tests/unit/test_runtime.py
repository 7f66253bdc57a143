"""The runtime: decisions carried out for real, ledgers equal to simulated ones, and arithmetic that is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from codesign.errors import UsageError
from codesign.kernels.reference.fused_moe import fused_moe
from codesign.kernels.runtime.cpu_layers import CpuLayers
from codesign.kernels.runtime.kv import KvCache
from codesign.kernels.runtime.layers import Layers, matrices_of, pairs_of
from codesign.kernels.runtime.loop import Runtime
from codesign.kernels.runtime.record import RunRecord
from codesign.kernels.runtime.routing import blank_trace
from codesign.kernels.runtime.tiers import HostTier, PacedTier
from codesign.kernels.runtime.weights import Weights, random_weights
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.registry import policy
from codesign.sim.costs import CostTable
from codesign.sim.engines.run import Engine, RunResult, Setup
from codesign.sim.ffn import DenseFfn, MoeFfn
from codesign.sim.mixers import Attention
from codesign.sim.model import Layer, ModelSpec
from codesign.sim.passes import build_passes
from codesign.sim.prefetch.registry import prefetcher
from codesign.traces import synthesise
from codesign.traces.expert_trace import ExpertTrace
from codesign.workbench.validate_run import without_time

LAYERS, EXPERTS, TOP_K = 3, 8, 2


def small_model(*, window: int | None = None, shared: int = 0, dense_first: bool = False) -> ModelSpec:
    attention = Attention(64, 4, 2, 16, 16, window)
    moe = MoeFfn(64, EXPERTS, TOP_K, 32, shared_intermediate=shared)
    layers = (Layer(attention, moe, 128),) * LAYERS
    if dense_first:
        layers = (Layer(attention, DenseFfn(64, 96), 128), *layers, Layer(attention, DenseFfn(64, 96), 128))
    return ModelSpec("small", "test", "test", 64, 50, layers, 64, False)


def small_trace(seed: int = 0, *, sequences: int = 2, tokens: int = 24, prompt: int = 5) -> ExpertTrace:
    return synthesise(
        num_tokens=tokens, num_layers=LAYERS, num_experts=EXPERTS, top_k=TOP_K, num_sequences=sequences,
        prefill_tokens=prompt, reuse=0.4, guess_recall=0.7, rng=np.random.default_rng(seed),
    )  # fmt: skip


MODEL = small_model()
WEIGHTS = random_weights(MODEL)


def setup_of(spec: str, ahead: str, experts: int, weights: Weights = WEIGHTS, **more: object) -> Setup:
    size = weights.shape.row_bytes
    return Setup(
        policy(spec),
        np.array([experts * size]),
        prefetch=prefetcher(ahead),
        size_per_layer=np.full(LAYERS, size),
        **more,
    )  # type: ignore[arg-type]


def source_of(trace: ExpertTrace, ahead: str = "none", batch: int | None = None) -> BlockSource:
    needs = prefetcher(ahead).needs
    return BlockSource(
        trace,
        build_passes(trace, batch),
        with_previous=needs == "previous",
        with_predicted=needs == "predicted",
    )


def real_run(
    trace: ExpertTrace,
    spec: str,
    ahead: str,
    experts: int,
    *,
    batch: int | None = None,
    check: bool = True,
    live: bool = False,
) -> RunRecord:
    with Runtime(MODEL, WEIGHTS, HostTier(WEIGHTS), limit_s=20) as runtime:
        return runtime.run(
            source_of(trace, ahead, batch), setup_of(spec, ahead, experts), check=check, live=live
        )


def simulated_run(
    trace: ExpertTrace, spec: str, ahead: str, experts: int, batch: int | None = None, engine: str = "numba"
) -> RunResult:
    source = source_of(trace, ahead, batch)
    passes, most = source.passes.count, int(source.passes.tokens().max())
    costs = CostTable(
        layer_class_L=np.zeros(LAYERS, np.int32), before_ns_PC=np.full((passes, 1), 900), resident_ns_PC=np.zeros((passes, 1), np.int64),
        expert_ns_CN=np.arange(most + 1)[None] * 100, after_ns_PC=np.full((passes, 1), 50), copy_ns_C=np.array([700]),
        storage_ns_C=np.array([1]), expert_bytes_C=np.array([WEIGHTS.shape.row_bytes]), copy_engines=1, source="test", provenance=(),
    )  # fmt: skip
    return Engine(source, replace(setup_of(spec, ahead, experts), costs=costs)).run(engine)


_WAYS = (("none", 3, None), ("gate", 9, None), ("noisy:recall=0.6", 7, 2), ("previous", 16, None))
_POLICIES = (
    "lru", "fifo", "lfu", "lfru", "clock", "sieve", "random", "least-stale", "static", "belady-mandatory", "lru", "least-stale",
)  # fmt: skip
CASES = [(spec, *_WAYS[(number + number // 10) % 4]) for number, spec in enumerate(_POLICIES)]
CASES += [(spec, "none", 5, 2) for spec in ("never", "belady-bypass", "unbounded")]


@pytest.mark.parametrize(("spec", "ahead", "experts", "batch"), CASES)
def test_the_real_ledger_equals_the_simulated_one_and_slots_hold_what_they_should(
    spec: str, ahead: str, experts: int, batch: int | None
) -> None:
    trace = small_trace(seed=experts)
    real, simulated = (
        real_run(trace, spec, ahead, experts, batch=batch),
        simulated_run(trace, spec, ahead, experts, batch),
    )
    assert without_time(real.ledger) == without_time(simulated.ledger)
    timeless = [
        np.column_stack((c[:, 0] + c[:, 1], c[:, 2:])) for c in (real.layer_counts, simulated.layer_counts)
    ]
    np.testing.assert_array_equal(*timeless)


def test_the_event_driven_engine_agrees_with_the_real_run_too() -> None:
    trace = small_trace(seed=5)
    real, simulated = (
        real_run(trace, "lru", "gate", 6),
        simulated_run(trace, "lru", "gate", 6, engine="simpy"),
    )
    assert without_time(real.ledger) == without_time(simulated.ledger)


def test_without_prefetch_no_count_depends_on_time() -> None:
    trace = small_trace(seed=2)
    real, simulated = real_run(trace, "lru", "none", 6), simulated_run(trace, "lru", "none", 6)
    assert real.ledger == simulated.ledger
    assert real.ledger.late == 0


def test_the_order_of_hits_misses_evictions_and_prefetches_is_the_simulators() -> None:
    """Against residency replayed by hand from the run's own log: every decision is possible and none is missing."""
    trace = small_trace(seed=3)
    record = real_run(trace, "lru", "gate", 7)
    resident: set[int] = set()
    hits = misses = evictions = fetched = 0
    for decision in record.decisions:
        for expert, kind in zip(decision.experts, decision.kinds, strict=True):
            assert (kind == 0) == (expert in resident)
            hits, misses = hits + (kind == 0), misses + (kind != 0)
        missed = {x for x, kind in zip(decision.experts, decision.kinds, strict=True) if kind}
        resident = ((resident | missed) - set(decision.evicted)) | set(decision.fetched)
        evictions, fetched = evictions + len(decision.evicted), fetched + len(decision.fetched)
        assert len(resident) <= 7
    ledger = record.ledger
    assert (hits, misses) == (ledger.hits + (ledger.late or 0), ledger.misses - (ledger.late or 0))
    assert (evictions, fetched) == (ledger.evictions, ledger.prefetch_issued)
    assert evictions > 0
    assert fetched > 0


def test_a_prompt_that_touches_more_experts_than_there_are_slots_runs_in_waves() -> None:
    record = real_run(small_trace(prompt=10), "lru", "none", 3)
    assert record.ledger.waves > 0


def test_copies_that_landed_are_the_ones_decided_less_those_withdrawn() -> None:
    record = real_run(small_trace(seed=4), "lru", "noisy:recall=0.3:precision=0.3", 5)
    assert len(record.copies) + record.withdrawn == record.ledger.experts_moved


def test_parts_of_the_time_add_up_to_the_passes() -> None:
    record = real_run(small_trace(), "lru", "none", 6, check=False)
    passes = (record.pass_end_ns - record.pass_start_ns).sum()
    assert record.part_ns.sum() == pytest.approx(passes, rel=0.02)
    assert sum(record.shares().values()) == pytest.approx(1)
    assert (record.part_ns >= 0).all()


def test_a_live_run_can_be_forced_afterwards_with_the_same_ledger() -> None:
    frame = blank_trace(
        prompts=np.array([4, 6]),
        decode_tokens=6,
        num_layers=LAYERS,
        num_experts=EXPERTS,
        top_k=TOP_K,
        lookahead=1,
    )
    for ahead in ("none", "gate", "previous"):
        live = real_run(frame, "lru", ahead, 7, live=True)
        assert live.trace is not None
        live.trace.check_ids()
        assert (np.asarray(live.trace.experts_TLK) >= 0).all()
        assert without_time(live.ledger) == without_time(simulated_run(live.trace, "lru", ahead, 7).ledger)


@pytest.mark.parametrize(
    ("spec", "ahead"), [("belady-bypass", "none"), ("static", "none"), ("lru", "perfect")]
)
def test_what_needs_the_future_is_refused_with_live_routing(spec: str, ahead: str) -> None:
    frame = blank_trace(
        prompts=np.array([4]), decode_tokens=2, num_layers=LAYERS, num_experts=EXPERTS, top_k=TOP_K
    )
    with pytest.raises(UsageError, match="live routing"):
        real_run(frame, spec, ahead, 7, live=True)


def test_a_trace_of_another_shape_and_another_contract_are_refused() -> None:
    other = synthesise(num_tokens=6, num_layers=2, num_experts=8, top_k=2, rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="3 MoE layers × 8 experts, the trace 2 × 8"):
        real_run(other, "lru", "none", 6)
    with (
        Runtime(MODEL, WEIGHTS, HostTier(WEIGHTS)) as runtime,
        pytest.raises(UsageError, match="contract slots"),
    ):
        runtime.run(source_of(small_trace()), setup_of("lru", "none", 6, contract="fused"))


@pytest.mark.parametrize(("window", "shared", "dense"), [(None, 0, False), (4, 0, False), (None, 48, True)])
def test_the_processors_kernels_and_plain_torch_give_one_decoder(
    window: int | None, shared: int, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(window=window, shared=shared, dense_first=dense)
    weights = random_weights(model, seed=3)
    frame = blank_trace(
        prompts=np.array([6, 3]), decode_tokens=8, num_layers=LAYERS, num_experts=EXPERTS, top_k=TOP_K
    )
    chosen = []
    for kind in (CpuLayers, Layers):
        monkeypatch.setattr("codesign.kernels.runtime.loop.layers_for", lambda device, kind=kind: kind)
        with Runtime(model, weights, HostTier(weights)) as runtime:
            record = runtime.run(source_of(frame, batch=2), setup_of("lru", "none", 9, weights), live=True)
        assert record.trace is not None
        chosen.append(np.sort(record.trace.experts_TLK, axis=-1))
    assert np.mean(chosen[0] == chosen[1]) > 0.97  # sums in another order may turn a tie between two experts


def test_experts_computed_one_by_one_from_slots_give_the_reference_mixture() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5, 64, generator=rng)
    router = torch.randn(EXPERTS, 64, generator=rng)
    rows = [torch.from_numpy(WEIGHTS.expert_row(e).copy()) for e in range(EXPERTS)]
    w_in, w_out = (
        torch.stack(part)
        for part in zip(*(matrices_of(r, WEIGHTS.shape, torch.float32) for r in rows), strict=True)
    )
    right = fused_moe(x, router, w_in, w_out, top_k=TOP_K, activation="silu")
    for kind in (CpuLayers, Layers):
        layers = kind(WEIGHTS, KvCache(WEIGHTS, np.array([5])), 5)
        weights, ids = layers.top_k(layers.router_logits(x, router), TOP_K)
        pairs = pairs_of(ids.numpy(), weights.numpy())
        layers.begin_experts(x)
        for member, expert in enumerate(pairs.experts_S.tolist()):
            layers.add_expert(layers.slot_views(rows[expert]), pairs, member)
        torch.testing.assert_close(layers.experts_sum(), right, rtol=1e-4, atol=1e-5)


def test_pairs_come_by_ascending_expert_and_leave_padding_out() -> None:
    pairs = pairs_of(np.array([[3, 1], [-1, 3]]), np.array([[0.5, 0.5], [0.0, 1.0]], np.float32))
    assert pairs.experts_S.tolist() == [1, 3]
    assert [pairs.tokens_P[a:b].tolist() for a, b in zip(pairs.starts_S, pairs.ends_S, strict=True)] == [
        [0],
        [0, 1],
    ]
    assert pairs.weights_P.tolist() == [0.5, 0.5, 1.0]


def test_copies_overlap_arithmetic_with_a_perfect_prefetcher() -> None:
    trace = small_trace(seed=7, tokens=40)
    tier = PacedTier(WEIGHTS, bytes_per_s=WEIGHTS.shape.row_bytes / 150e-6, latency_s=0.0)
    with Runtime(MODEL, WEIGHTS, tier) as runtime:
        source, setup = source_of(trace, "perfect"), setup_of("lru", "perfect", 12)
        overlap = max(runtime.run(source, setup).overlap() or 0.0 for _ in range(3))
    assert 0.2 < overlap <= 1  # share of the copies' time that passed beside arithmetic; a busy machine lowers it
