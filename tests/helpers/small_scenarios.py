"""Small traces and machines for tests, by hand or drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.misses import MISS_POLICIES, MissPolicy, miss_policy
from codesign.sim.cache.registry import POLICIES, Policy, policy
from codesign.sim.costs import CostTable
from codesign.sim.engines.run import Setup
from codesign.sim.passes import Passes, build_passes
from codesign.sim.prefetch.registry import prefetcher
from codesign.traces.expert_trace import ExpertTrace

SPECS = (*POLICIES, "least-stale:order=distance", "least-stale:sides=false", "static:fit=first-half")


def trace_of(
    experts: Sequence[object] | np.ndarray,
    num_experts: int,
    *,
    starts: Sequence[int] = (0,),
    prefill: Sequence[bool] | np.ndarray | None = None,
    steps: Sequence[int] | None = None,
    predicted: np.ndarray | None = None,
    scores: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> ExpertTrace:
    """A synthetic trace from nested lists [T][L][K]."""
    ids = np.asarray(experts, np.int32)
    return ExpertTrace(
        experts_TLK=ids,
        layer_ids_L=np.arange(ids.shape[1], dtype=np.int32),
        num_experts=num_experts,
        sequence_start_S=np.asarray(starts, np.int64),
        model="test",
        source="test",
        licence="none",
        synthetic=True,
        is_prefill_T=None if prefill is None else np.asarray(prefill, bool),
        step_id_T=None if steps is None else np.asarray(steps, np.int64),
        weights_TLK=weights,
        predicted_TLHM=predicted,
        predicted_scores_TLHM=scores,
    )


def one_layer(ids: Sequence[int], num_experts: int) -> ExpertTrace:
    """A plain sequence of single accesses: one layer, top-1."""
    return trace_of(np.asarray(ids)[:, None, None], num_experts)


def source_of(trace: ExpertTrace, batch: int | None = None, **options: object) -> BlockSource:
    return BlockSource(trace, build_passes(trace, batch), **options)  # type: ignore[arg-type]


def drawn_trace(rng: np.random.Generator) -> ExpertTrace:
    """Shape, padding, prompts, steps and guesses all drawn; routing has some reuse, so that caches have work."""
    layers, experts = int(rng.integers(1, 5)), int(rng.integers(2, 13))
    top_k = int(rng.integers(1, min(4, experts) + 1))
    sequences = int(rng.integers(1, 5))
    lengths = rng.integers(1, 12, sequences)
    rows = int(lengths.sum())
    weight = rng.random((layers, experts)) ** 3 + 0.02
    ids = np.empty((rows, layers, top_k), np.int32)
    for row in range(rows):
        for layer in range(layers):
            if row and rng.random() < 0.3:
                ids[row, layer] = ids[row - 1, layer]
            else:
                p = weight[layer] / weight[layer].sum()
                ids[row, layer] = rng.choice(experts, top_k, replace=False, p=p)
    if top_k > 1 and rng.random() < 0.3:
        ids[rng.random(ids.shape) < 0.1] = -1
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    prefill = None
    if rng.random() < 0.8:
        position = np.arange(rows) - np.repeat(starts, lengths)
        prefill = position < np.repeat(rng.integers(0, 5, sequences), lengths)
    ahead = int(rng.integers(1, 3))
    guesses = int(rng.integers(top_k, experts + 1))
    predicted = np.full((rows, layers, ahead, guesses), -1, np.int32)
    for row in range(rows):
        for layer in range(layers):
            for h in range(ahead):
                target = layer + h + 1
                if target < layers:
                    order = rng.permutation(experts)
                    if rng.random() < 0.7:
                        true = [int(x) for x in ids[row, target] if x >= 0]
                        order = np.array(true + [int(x) for x in order if x not in true])
                    predicted[row, layer, h] = order[:guesses]
    scores = np.sort(rng.random(predicted.shape).astype(np.float32), axis=-1)[..., ::-1].copy()
    steps = None
    if rng.random() < 0.2:
        steps = np.concatenate([np.cumsum(rng.integers(0, 2, n)) for n in lengths])
    weights = np.where(ids >= 0, rng.random(ids.shape) ** 2, 0.0)
    return trace_of(
        ids,
        experts,
        starts=starts,
        prefill=prefill,
        steps=steps,
        predicted=predicted,
        scores=scores,
        weights=weights,
    )


def drawn_costs(rng: np.random.Generator, trace: ExpertTrace, passes: Passes, sizes: np.ndarray) -> CostTable:
    """Few-valued small times make ties in time common; larger ones make queues."""
    classes = int(rng.integers(1, trace.num_layers + 1))
    layer_class = rng.integers(0, classes, trace.num_layers).astype(np.int32)
    scale = int(rng.choice([2, 4, 50, 1000]))
    tokens = int(passes.tokens().max())

    def drawn(*shape: int, low: int = 0) -> np.ndarray:
        return rng.integers(low, scale + low + 1, shape).astype(np.int64)

    expert_ns = np.zeros((classes, tokens + 1), np.int64)
    expert_ns[:, 1:] = np.sort(drawn(classes, tokens), axis=1)
    slow = int(rng.choice([1, 3, 10]))
    return CostTable(
        layer_class_L=layer_class,
        before_ns_PC=drawn(passes.count, classes),
        resident_ns_PC=drawn(passes.count, classes),
        expert_ns_CN=expert_ns,
        after_ns_PC=drawn(passes.count, classes),
        copy_ns_C=drawn(classes, low=1) * slow,
        storage_ns_C=drawn(classes, low=1) * slow,
        expert_bytes_C=np.ones(classes, np.int64),
        copy_engines=int(rng.integers(1, 4)),
        source="drawn",
        provenance=(),
    )


def drawn_setup(
    rng: np.random.Generator, *, timed: bool = True, misses: bool = True
) -> tuple[BlockSource, Setup]:
    """A whole scenario: trace, batch, policy, prefetcher, contract, capacities, sizes and machine."""
    trace = drawn_trace(rng)
    batch = None if trace.step_id_T is not None and rng.random() < 0.7 else int(rng.integers(1, 5))
    passes = build_passes(trace, batch)
    chosen = policy(str(rng.choice(SPECS)))
    ahead = int(rng.integers(1, max(2, min(3, trace.num_layers))))
    ahead = min(ahead, trace.predicted_TLHM.shape[2] if trace.predicted_TLHM is not None else 1)
    name = str(
        rng.choice(
            ["none", "gate", "gate", "previous", "perfect", "noisy", "coactivation", "hot", "activation"]
        )
    )
    if trace.num_layers == 1 and name != "none" and ahead > 1:
        ahead = 1
    spec = name if name == "none" else f"{name}:ahead={ahead}"
    if name in ("gate", "coactivation", "hot", "activation") and rng.random() < 0.5:
        spec += f":top={int(rng.integers(1, 5))}"
    if name == "gate" and rng.random() < 0.3:
        spec += ":score=0.5"
    if name == "gate" and rng.random() < 0.3:
        spec += ":layers=each"
    if name == "noisy":
        spec += f":recall={rng.random():.2f}:precision={rng.random() * 0.9 + 0.1:.2f}"
    contract = str(rng.choice(["slots", "slots", "fused", "access"]))
    sizes = np.ones(trace.num_layers, np.int64)
    if rng.random() < 0.3:
        sizes = rng.integers(1, 4, trace.num_layers).astype(np.int64)
    per_layer = rng.random() < 0.4
    capacity = _drawn_capacity(rng, trace, chosen, contract, sizes, per_layer)
    source = BlockSource(
        trace,
        passes,
        with_previous=name == "previous",
        with_predicted=name == "gate",
        tie_rng=np.random.default_rng(7) if rng.random() < 0.2 else None,
    )
    costs = drawn_costs(rng, trace, passes, sizes) if timed else None
    setup = Setup(
        policy=chosen,
        capacity_per_pool=capacity,
        prefetch=prefetcher(spec),
        contract=contract,
        size_per_layer=sizes,
        costs=costs,
        miss=drawn_miss(rng, contract, timed=timed) if misses else miss_policy("load"),
        host_expert_ns_CN=None if costs is None else costs.expert_ns_CN * int(rng.integers(0, 4)),
        experts_home=str(rng.choice(["host", "host", "storage"])),
        prefetch_budget=-1 if rng.random() < 0.6 else int(rng.integers(0, 8)),
        decision_ns=int(rng.choice([0, 0, 1, 3, 40])),
        decision_beside=bool(rng.random() < 0.5),
        warm_passes=int(rng.integers(0, passes.count)) if rng.random() < 0.3 else 0,
        seed=int(rng.integers(0, 1000)),
        record_events=True,
    )
    return source, setup


def drawn_miss(rng: np.random.Generator, contract: str, *, timed: bool) -> MissPolicy:
    """Half of the scenarios load every miss, as all under `access` do."""
    if contract == "access" or rng.random() < 0.5:
        return miss_policy("load")
    name = str(rng.choice([name for name in MISS_POLICIES if name != "load"]))
    settings = {
        "host": f"when={'cheaper' if timed and rng.random() < 0.5 else 'always'}",
        "lower": "above=0.4",
    }
    setting = settings.get(name, f"below={rng.random():.2f}")
    return miss_policy(f"{name}:{setting}")


def _drawn_capacity(
    rng: np.random.Generator,
    trace: ExpertTrace,
    chosen: Policy,
    contract: str,
    sizes: np.ndarray,
    per_layer: bool,
) -> np.ndarray:
    """At least one token's top-k of the largest experts in each pool, as `slots` demands."""
    if chosen.name == "never":
        return np.zeros(trace.num_layers if per_layer else 1, np.int64)
    whole = sizes * trace.num_experts
    least = sizes * trace.top_k
    if chosen.name == "unbounded":
        return whole if per_layer else whole.sum(keepdims=True)
    if per_layer:
        return np.array(
            [rng.integers(low, high + 1) for low, high in zip(least, whole, strict=True)], np.int64
        )
    low = int(least.max())
    return np.array(
        [rng.integers(low, max(low, int(whole.sum() * rng.choice([0.3, 0.6, 1.1]))) + 1)], np.int64
    )
