"""What prefetchers that learn from the past want, event by event, against their slow twins; and that they see no future."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.sim.cache.registry import POLICIES, policy
from codesign.sim.engines.counting import decide_one
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.prefetch.registry import PREFETCHERS, prefetcher
from codesign.sim.prefetch.request import MANY
from codesign.traces.expert_trace import ExpertTrace
from slow_prefetchers import wish
from small_scenarios import drawn_trace, source_of

SPECS = ("hot", "hot:top=2", "coactivation", "coactivation:top=1", "activation", "activation:top=3", "map", "map:top=2")
NONE = np.zeros(0, np.int32)


def wishes(trace: ExpertTrace, spec: str, batch: int) -> list[list[int]]:
    """Whom a prefetcher wants at each event, as expert ids of the layer it looks at."""
    source = source_of(trace, batch)
    engine = Engine(source, Setup(policy("lru"), np.array([trace.top_k]), prefetch=prefetcher(spec)))
    found = []
    for block in source:
        for index in range(block.passes):
            for layer in range(trace.num_layers):
                decide_one(
                    engine.rules, engine.state, engine.plan, engine.wanted, block, index, layer, NONE, 0, engine.counts,
                    engine.layer_counts,
                )  # fmt: skip
                asked = engine.wanted.expert[: engine.wanted.size[MANY]]
                assert ((asked // trace.num_experts) == layer + 1).all()
                found.append((asked % trace.num_experts).tolist())
    return found


def test_every_prefetcher_that_learns_is_in_this_suite() -> None:
    learners = {name for name, found in PREFETCHERS.items() if found.needs == "history"}
    assert {prefetcher(spec).name for spec in SPECS} == learners


@pytest.mark.parametrize("spec", SPECS)
def test_a_prefetcher_wants_what_its_slow_twin_wants_in_that_order(spec: str) -> None:
    asked = 0
    for seed in range(12):
        trace = drawn_trace(np.random.default_rng(seed))
        if trace.num_layers < 2:
            continue
        batch = 1 if spec.startswith("activation") else 1 + seed % 3
        source = source_of(trace, batch)
        events = [
            (number, layer) for number in range(source.passes.count) for layer in range(trace.num_layers)
        ]
        expected = [wish(prefetcher(spec), source, number, layer) for number, layer in events]
        assert wishes(trace, spec, batch) == expected, f"seed {seed}"
        asked += sum(map(len, expected))
    assert asked


@pytest.mark.parametrize("spec", SPECS)
def test_a_prefetcher_that_learns_wants_the_same_whatever_comes_later(spec: str) -> None:
    for seed in range(8):
        trace = drawn_trace(np.random.default_rng(seed))
        if trace.num_layers < 2 or trace.num_tokens < 4:
            continue
        half = trace.num_tokens // 2
        other = trace.experts_TLK.copy()
        other[half:] = (other[half:] + 1) % trace.num_experts * (other[half:] >= 0) - (other[half:] < 0)
        fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
        changed = ExpertTrace(**{**fields, "experts_TLK": other})
        source = source_of(trace, 1)
        unchanged = int((source.passes.rows[source.passes.start[1:] - 1] < half).sum()) * trace.num_layers
        assert wishes(trace, spec, 1)[:unchanged] == wishes(changed, spec, 1)[:unchanged]


@pytest.mark.parametrize("eviction", sorted(POLICIES))
def test_what_a_prefetcher_learns_stays_out_of_the_rows_of_an_eviction(eviction: str) -> None:
    """With a budget of nothing a prefetcher fetches nothing, so whatever it has learnt must change nothing either."""
    for seed in range(5):
        trace = drawn_trace(np.random.default_rng(seed))
        capacity = max(2 * trace.top_k, trace.num_layers * trace.num_experts // 3)
        hits = []
        for spec in ("none", "activation"):
            setup = Setup(
                policy(eviction), np.array([capacity]), prefetch=prefetcher(spec), prefetch_budget=0
            )
            hits.append(Engine(source_of(trace, 2), setup).run("numba").ledger.hits)
        assert hits[0] == hits[1], seed
