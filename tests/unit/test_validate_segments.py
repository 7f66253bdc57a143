"""Segments of a real run and of its simulation: inside the run, no two at once in a lane, and as many as were counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from codesign.kernels.runtime.loop import Runtime
from codesign.kernels.runtime.record import RunRecord
from codesign.kernels.runtime.tiers import HostTier
from codesign.kernels.runtime.weights import random_weights
from codesign.sim.engines.run import Engine
from codesign.sim.engines.survey import survey
from codesign.sim.ffn import MoeFfn
from codesign.sim.mixers import Attention
from codesign.sim.model import Layer, ModelSpec
from codesign.traces import synthesise
from codesign.workbench.validate_cases import Case, Group, Link
from codesign.workbench.validate_fit import Fitted
from codesign.workbench.validate_run import Prepared, prepare
from codesign.workbench.validate_segments import Segment, measured_segments, simulated_segments

LAYERS, EXPERTS, TOP_K = 3, 8, 2
MODEL = ModelSpec(
    "small",
    "test",
    "test",
    64,
    50,
    (Layer(Attention(64, 4, 2, 16, 16), MoeFfn(64, EXPERTS, TOP_K, 32), 128),) * LAYERS,
    64,
    False,
)
WEIGHTS = random_weights(MODEL)
ROW_BYTES = WEIGHTS.shape.row_bytes


def prepared(ahead: str) -> Prepared:
    trace = synthesise(
        num_tokens=24, num_layers=LAYERS, num_experts=EXPERTS, top_k=TOP_K, num_sequences=2, prefill_tokens=5, reuse=0.4,
        guess_recall=0.7, rng=np.random.default_rng(0),
    )  # fmt: skip
    group = Group("g", MODEL, Link("host"), None, {"judged": trace}, ())
    return prepare(group, Case("lru", ahead, 7), ROW_BYTES)


def segments_of_all_passes(case: Prepared) -> tuple[RunRecord, list[Segment]]:
    with Runtime(MODEL, WEIGHTS, HostTier(WEIGHTS), limit_s=20) as runtime:
        record = runtime.run(case.source, case.setup)
    return record, measured_segments(
        record, range(case.passes.count), case.source.trace.layer_ids_L.tolist(), EXPERTS
    )


@pytest.mark.parametrize("ahead", ["none", "gate"])
def test_measured_segments_lie_inside_the_run_and_those_of_one_lane_never_overlap(ahead: str) -> None:
    record, found = segments_of_all_passes(prepared(ahead))
    length = int(record.pass_end_ns[-1] - record.pass_start_ns[0])
    assert min(one["start_ns"] for one in found) == 0
    for lane in ("compute", "host", "link"):
        mine = sorted((one for one in found if one["lane"] == lane), key=lambda one: one["start_ns"])
        assert mine
        assert all(one["end_ns"] <= two["start_ns"] for one, two in pairwise(mine))
        if lane != "link":  # a copy ahead may land after the last pass
            assert mine[-1]["end_ns"] <= length


@pytest.mark.parametrize("ahead", ["none", "gate"])
def test_the_copies_are_those_the_ledger_counted_and_the_experts_those_accessed(ahead: str) -> None:
    record, found = segments_of_all_passes(prepared(ahead))
    kinds = [one["kind"] for one in found]
    ledger = record.ledger
    copies = kinds.count("demand") + kinds.count("prefetch")
    assert copies + record.withdrawn == ledger.experts_moved
    assert kinds.count("routed") == ledger.accesses


def test_parts_and_waits_of_the_segments_add_up_to_what_the_run_noted() -> None:
    record, found = segments_of_all_passes(prepared("gate"))
    of_kinds = [
        sum(one["end_ns"] - one["start_ns"] for one in found if one["kind"] == kind)
        for kind in ("before", "decision", "unrouted", "routed", "stall", "after")  # in the order of `PARTS`
    ]
    assert of_kinds == record.part_ns.sum(axis=(1, 2)).tolist()


def test_simulated_waits_add_up_to_the_stall_that_the_engine_counted() -> None:
    case = prepared("none")
    classes = np.full((case.passes.count, 3), 900, np.int64)
    fitted = Fitted(
        classes,
        classes * 0,
        classes // 9,
        np.arange(20, dtype=np.int64) * 100,
        700,
        None,
        300,
        np.array([0, 1, 2], np.int32),
        ROW_BYTES,
    )
    setup = replace(case.setup, costs=fitted.table(case.passes), decision_ns=fitted.decision_ns)
    found = simulated_segments(case, setup)
    passes = {one["pass"] for one in found}
    engine = Engine(case.source, setup, look=survey(case.source)).run("simpy", stop_after=max(passes) + 1)
    before = Engine(case.source, setup, look=survey(case.source)).run("simpy", stop_after=min(passes))
    assert engine.totals is not None
    assert before.totals is not None
    waited = sum(one["end_ns"] - one["start_ns"] for one in found if one["kind"] == "stall")
    assert waited == engine.totals["stall_ns"] - before.totals["stall_ns"] > 0
    assert {one["lane"] for one in found} == {"compute", "host", "link"}
    assert {one["layer"] for one in found} == set(range(LAYERS))
