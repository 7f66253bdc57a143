"""A validation result made by hand, and a real run's record of two passes over two layers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from codesign.workbench.validate_result import Metric, ScenarioResult, Timelines, ValidationResult
from codesign.workbench.validate_segments import measured_segments

LAYERS, EXPERTS = (3, 5), 4


def record() -> Any:
    """Times in ns. Each event: 10 before, 2 deciding, 1 shared, expert 0 for 19, 10 waited, expert 2 for 43, 5 after."""
    starts = np.array([100, 300])
    known = np.array([[112, 202], [312, 402]])
    ends = np.array([[190, 280], [390, 480]])
    part = np.zeros((6, 2, 2), np.int64)
    part[0], part[1], part[2], part[5] = 10, 2, 1, 5
    stalls = np.array([[k + 20, k + 30] for k in known.ravel()])
    copies = tuple(
        SimpleNamespace(expert=x, kind=kind, started_ns=1000 + low, landed_ns=1000 + low + 25)
        for x, kind, low in (
            (1, 0, 90),
            (1, 0, 120),
            (6, 1, 210),
            (2, 0, 320),
            (7, 0, 900),
        )  # first and last: other passes
    )
    return SimpleNamespace(
        pass_start_ns=starts, pass_end_ns=ends[:, -1], part_ns=part, known_ns=known, end_ns=ends,
        stall_spans_ns=stalls, copies=copies, began_ns=1000, expert_ns_M=np.array([19, 43] * 4),
        expert_M=np.array([0, 2, 4, 6] * 2), decisions=(SimpleNamespace(experts=[0, 2]),) * 4,
    )  # fmt: skip


def scenario(name: str = "paced: lru at 8 experts") -> ScenarioResult:
    segments = tuple(measured_segments(record(), [0, 1], LAYERS, EXPERTS))
    shares = {"compute": 0.5, "stall": 0.3, "host": 0.2}
    return ScenarioResult(
        name=name, group="paced", tier="paced", policy="lru", prefetch="none", capacity_experts=8,
        metrics=(Metric("tpot_s", 1e-3, 9e-4, 1.1e-3, 1.05e-3, 0.02), Metric("ttft_s", 2e-3, None, None, 2e-3, None)),
        ledgers_equal=True, late_simulated=0, late_measured=0.0, waves=0, prefetch_issued=0, shares_predicted=shares,
        shares_measured={"compute": 0.52, "stall": 0.27, "host": 0.21}, overlap=0.4, layer_ratio=(0.98, 1.04), layer_values=4,
        layer_values_inside=4, repeats=7, layer_ids=LAYERS, timelines=Timelines((0, 1), 3, 0.05, segments, segments),
    )  # fmt: skip


def validation(name: str = "paced: lru at 8 experts", **changed: Any) -> ValidationResult:
    """`changed`: fields of the one scenario that are to be different."""
    calibration = {"groups": {"paced": {"copy_s": 1.5e-4}}, "band_half_width": {"tpot_s": 0.1}}
    inputs = {"paced": {"trace": {"file": "t.safetensors"}, "experts": {"link_bytes_per_s": 4e9}}}
    return ValidationResult(
        (replace(scenario(name), **changed),), 0.1, calibration, {"cpu": "two cores"}, inputs
    )
