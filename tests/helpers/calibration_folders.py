"""A calibration's folder without a measurement: the real plan, journal, tables and fit, with times from a formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from codesign.kernels.roof import Roof
from codesign.workbench.calibration_fit import fit_and_check
from codesign.workbench.calibration_journal import Visit, open_journal
from codesign.workbench.calibration_plan import Limits, plan
from codesign.workbench.calibration_points import save_roof
from codesign.workbench.calibration_result import CalibrationResult, collect

ROOF = Roof(1e10, {"bf16": 1e11, "fp32": 5e10})
OPERATIONS = ("gemm", "norm", "copy")
_FAST = Limits(flops_per_s=1e15, bytes_per_s=1e12, longest_s=1.0, arena_bytes=2**40)


def calibrated(
    folder: Path, operations: tuple[str, ...] = OPERATIONS, cpu: str = "a processor", with_roof: bool = True
) -> CalibrationResult:
    """Times are the roof's floor, half as much again, and a launch; a tenth of noise that only ever adds."""
    rng = np.random.default_rng(0)
    cases = plan("quick", _FAST, operations=operations)
    with open_journal(folder / "journal.jsonl", {"cpu": cpu}, resume=False) as journal:
        for turn in range(3):
            for case in cases:
                took = (1.5 * ROOF.floor_s(case.operation) + 2e-6) * (1 + 0.1 * rng.random(4))
                journal.append(Visit(case.key, turn, case.name, tuple(took.tolist())))
        visits = list(journal.visits)
    if with_roof:
        save_roof(ROOF, folder)
    return fit_and_check(collect(cases, visits, ROOF, {"cpu": cpu, "threads": 1}, folder))[1]
