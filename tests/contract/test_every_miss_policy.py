"""What every miss policy keeps: counts as its slow twin's, time of the host cores by hand, and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from codesign.errors import UsageError
from codesign.sim.cache.misses import MISS_POLICIES, miss_policy
from codesign.sim.cache.registry import policy
from codesign.sim.costs import CostTable
from codesign.sim.engines.host_time import host_expert_ns
from codesign.sim.engines.run import ENGINES, Engine, Setup, run
from slow_policies import slow_run
from small_scenarios import drawn_trace, source_of, trace_of

SPECS = (
    "host:when=always", "lower", "lower:above=0.5:share=0.5", "substitute", "substitute:below=0.3", "skip:below=0.4",
)  # fmt: skip
COUNTED = {"host": "computed_on_host", "lower": "lowered", "substitute": "substituted", "skip": "skipped"}


def test_every_miss_policy_that_does_not_load_is_in_this_suite() -> None:
    assert {miss_policy(spec).name for spec in SPECS} == set(MISS_POLICIES) - {"load"}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("contract", ["slots", "fused"])
@pytest.mark.parametrize("name", ["lru", "least-stale", "belady-bypass", "static"])
def test_a_miss_policy_serves_the_misses_that_its_slow_twin_serves(
    spec: str, contract: str, name: str
) -> None:
    served = 0
    for seed in range(30):
        trace = drawn_trace(np.random.default_rng(seed))
        miss, source = miss_policy(spec), source_of(trace, 1 + seed % 3)
        capacity = np.array([min(trace.top_k + seed % 9, trace.num_experts * trace.num_layers)])
        setup = Setup(policy(name), capacity, miss=miss, contract=contract)
        ledger, expected = run(source, setup).ledger, slow_run(source, setup)
        assert (ledger.hits, ledger.evictions, ledger.bypasses, getattr(ledger, COUNTED[miss.name])) == (
            expected["hits"], expected["evictions"], expected["bypasses"], expected[miss.name],
        ), f"seed {seed}"  # fmt: skip
        touched = ledger.weight_lowered + ledger.weight_substituted + ledger.weight_skipped
        assert touched == expected["weight"]
        not_moved = ledger.computed_on_host + ledger.substituted + ledger.skipped
        first_load = int(capacity[0]) if name == "static" else 0
        assert ledger.misses - not_moved <= ledger.experts_moved <= ledger.misses - not_moved + first_load
        served += expected[miss.name]
    assert served


def machine(passes: int) -> CostTable:
    def each(value: int) -> np.ndarray:
        return np.full((passes, 1), value, np.int64)

    return CostTable(
        layer_class_L=np.zeros(1, np.int32), before_ns_PC=each(10), resident_ns_PC=each(0),
        expert_ns_CN=np.array([[0, 5, 6]], np.int64), after_ns_PC=each(0), copy_ns_C=np.array([100], np.int64),
        storage_ns_C=np.array([1000], np.int64), expert_bytes_C=np.array([8], np.int64), copy_engines=1, source="by hand",
        provenance=(),
    )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("load", [215, 430, 645]),  # two copies, the first computed beside the second
        ("host:when=always", [215, 285, 305]),  # loaded into an empty cache; 30 ns each on the host; two hits
        ("lower:share=0.25", [65, 130, 195]),  # copies of 25 ns, which are not kept
        ("skip:below=1", [10, 20, 30]),  # each weighs half
    ],
)
def test_the_time_of_a_miss_by_hand(engine: str, spec: str, expected: list[int]) -> None:
    """Top-2 of four experts in one layer, two slots: {0, 1}, {2, 3}, {0, 1}; 10 ns before the experts are known."""
    weights = np.full((3, 1, 2), 0.5)
    trace = trace_of([[[0, 1]], [[2, 3]], [[0, 1]]], 4, weights=weights)
    source = source_of(trace)
    setup = Setup(
        policy("lru"), np.array([16]), size_per_layer=np.array([8], np.int64), costs=machine(3), miss=miss_policy(spec),
        host_expert_ns_CN=np.array([[0, 30, 40]], np.int64),
    )  # fmt: skip
    result = Engine(source, setup).run(engine)
    assert result.pass_end_ns is not None
    assert result.pass_end_ns.tolist() == expected


def test_cheaper_takes_the_host_only_where_it_beats_copy_and_device_together() -> None:
    trace = trace_of([[[0, 1]], [[2, 3]]], 4)
    setup = Setup(policy("lru"), np.array([2]), costs=machine(2), miss=miss_policy("host"))
    for host_ns, on_host in ((105, 2), (106, 0)):
        one = dataclasses.replace(setup, host_expert_ns_CN=np.array([[0, host_ns, host_ns]], np.int64))
        assert run(source_of(trace), one).ledger.computed_on_host == on_host


def test_what_cannot_be_served_is_refused_with_the_reason() -> None:
    without = source_of(trace_of([[[0, 1]]], 4))
    cases = (
        (Setup(policy("lru"), np.array([2]), miss=miss_policy("skip")), "needs gate weights"),
        (Setup(policy("score"), np.array([2])), "needs gate weights"),
        (Setup(policy("lru"), np.array([2]), miss=miss_policy("host")), "host:when=always"),
        (
            Setup(policy("lru"), np.array([2]), miss=miss_policy("host:when=always"), costs=machine(1)),
            "host cores",
        ),
        (Setup(policy("lru"), np.array([2]), miss=miss_policy("skip"), contract="access"), "slots or fused"),
    )
    for setup, reason in cases:
        with pytest.raises(UsageError, match=reason):
            run(without, setup)
    mistakes = (
        ("skp", "skip"), ("skip:below=2", "from 0 to 1"), ("host:when=never", "cheaper"), ("lower:share=0", "above 0"),
    )  # fmt: skip
    for spec, reason in mistakes:
        with pytest.raises(UsageError, match=reason):
            miss_policy(spec)


def test_the_host_reads_an_expert_once_or_is_bound_by_its_arithmetic() -> None:
    """12 MB at 40 GB/s are 300 µs, twice that at half the roof; 12 Mflop a token at 20 Gflop/s are 600 µs a token."""
    found = host_expert_ns(
        np.array([12_000_000]),
        np.array([12_000_000]),
        2,
        host_bytes_per_s=40e9,
        host_flops_per_s=80e9,
        efficiency=0.5,
    )
    assert found.tolist() == [[0, 600_000, 600_000]]
    slow = host_expert_ns(
        np.array([1]), np.array([12_000_000]), 2, host_bytes_per_s=40e9, host_flops_per_s=20e9
    )
    assert slow.tolist() == [[0, 600_000, 1_200_000]]
    with pytest.raises(UsageError, match="efficiency must be above 0"):
        host_expert_ns(
            np.array([1]), np.array([1]), 1, host_bytes_per_s=1.0, host_flops_per_s=1.0, efficiency=0.0
        )
