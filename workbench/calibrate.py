"""Calibrate: measure a device's kernels on a grid of shapes, journalled as they come, and make a profile of them.

Every shape is visited several times, in another order each round, so that a neighbour's busy minute falls on all shapes
alike and shows as spread between rounds. One whole shape in five is measured and never fitted: the errors that are
reported are errors on those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunError, UsageError
from .calibration_fit import fit_and_check
from .calibration_grids_gpu import GPU_GRIDS
from .calibration_journal import Journal, Visit, open_journal
from .calibration_model import model_operations
from .calibration_plan import GRIDS, Case, Limits, plan
from .calibration_points import save_roof
from .calibration_result import CalibrationResult, collect, seen_by_driver

if TYPE_CHECKING:
    from ..kernels.devices import Device
    from ..kernels.subjects import Bench
    from ..sim.model import ModelSpec

Progress = Callable[[int, int, float, str], None]
"""(visits done, visits in all, seconds left by the pace so far, what is measured now)"""

_SUITES: Mapping[str, tuple[float, float, int]] = {"quick": (90.0, 0.03, 3), "full": (1800.0, 0.2, 7)}
"""Suite → seconds, longest call in seconds, rounds."""
_SLACK = 0.8  # of the wall time left is planned for visits; the rest goes into making arrays


class _DeviceError(Exception):
    """The device broke down under a measurement; what was measured before stands."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a calibration measures; what two runs must share to be one (its header)."""

    suite: str
    rounds: int
    operations: tuple[str, ...]
    seed: int
    model: str

    def header(self, environment: Mapping[str, Any]) -> dict[str, Any]:
        from ..kernels.environment import TIMES_DEPEND_ON

        names = (*TIMES_DEPEND_ON, "device", "device_name")  # absent where it is the processor
        machine = {name: environment[name] for name in names if name in environment}
        return {
            **machine,
            "suite": self.suite,
            "rounds": self.rounds,
            "operations": list(self.operations),
            "seed": self.seed,
            "model": self.model,
        }


def calibrate(
    model: str | Path | ModelSpec | None = None,
    *,
    out: str | Path,
    device: str | Device = "cpu",
    suite: str = "quick",
    operations: Sequence[str] = (),
    threads: int | None = None,
    rounds: int | None = None,
    budget_s: float | None = None,
    resume: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> CalibrationResult:
    """Measure a device into the directory `out`: `journal.jsonl`, a table an operation, and `profile.toml`.

    `device`: cpu, or cuda:N for our Triton kernels, torch's products and the copies over the link of that GPU.
    `model`: its own shapes are measured beside the grid, and fitted.
    `threads` (the processor's; all usable cores if None) are set explicitly and pinned. `budget_s` bounds the measuring;
    what it did not reach is listed in the result and measured when the same call is made again. With `resume` a journal
    that is there goes on. A shape that does not fit into memory is skipped with the reason. Raises `UsageError` for
    settings or a journal that do not fit and for a device that is not there, `RunError` where the disk refuses the
    device fails or the user interrupts: the journal keeps all that was measured.
    """
    from ..kernels.devices import open_device
    from ..kernels.roof import measure_roof
    from ..sim.catalog import load_model

    if suite not in _SUITES:
        plan(suite, Limits(1.0, 1.0, 1.0, 1))  # raises the error that names the suites
    default_s, longest_s, default_rounds = _SUITES[suite]
    limit_s, rounds = budget_s or default_s, rounds or default_rounds
    if limit_s <= 0 or rounds < 1:
        raise UsageError(f"budget_s must be above 0 and rounds at least 1, got {limit_s} and {rounds}")
    spec = load_model(model) if isinstance(model, str | Path) else model
    name = "" if spec is None else spec.name
    settings = Settings(suite, rounds, tuple(operations), seed, name)
    measured = open_device(device, threads=threads) if isinstance(device, str) else device
    facts = measured.environment()
    folder = Path(out)
    with ExitStack() as stack:
        journal = stack.enter_context(
            open_journal(folder / "journal.jsonl", settings.header(facts), resume=resume)
        )
        reads = "storage_read" in (operations or ("storage_read",))
        bench = stack.enter_context(measured.bench(folder if reads else None))
        roof = measure_roof(bench)
        limits = Limits(*measured.nominal_rates, longest_s, measured.arena_bytes)
        wanted = [] if spec is None else model_operations(spec, full=suite == "full")
        cases = plan(
            suite, limits, operations=operations, with_storage=bench.file is not None, wanted=wanted,
            grids=GPU_GRIDS if bench.version == "gpu" else GRIDS,
        )  # fmt: skip
        try:
            _visit_all(cases, measured, bench, journal, settings, time.perf_counter() + limit_s, progress)
            roof = roof.best_with(measure_roof(bench))  # neighbours may have been busy at the start
            save_roof(roof, folder)
        except (KeyboardInterrupt, _DeviceError) as stop:
            reason = str(stop) or "interrupted"
            raise RunError(
                f"{reason} after {len(journal.visits)} visits; they are kept in {journal.path}, the same command goes on"
            ) from stop
    _, result = fit_and_check(collect(cases, journal.visits, roof, facts | seen_by_driver(journal.visits), folder))
    return result


def _visit_all(
    cases: Sequence[Case],
    device: Device,
    bench: Bench,
    journal: Journal,
    settings: Settings,
    deadline: float,
    progress: Progress | None,
) -> None:
    """All cases of a round before the next one; every visit is on disk before the next begins."""
    import numpy as np

    done, skipped = journal.done(), {visit.key for visit in journal.visits if visit.skipped}
    left = [
        (turn, cases[position])
        for turn in range(settings.rounds)
        for position in np.random.default_rng([settings.seed, turn]).permutation(len(cases))
        if (cases[position].key, turn) not in done
    ]
    total, began = len(left) + len(done), time.perf_counter()
    for number, (turn, case) in enumerate(left):
        now = time.perf_counter()
        if now >= deadline:
            return
        pace = (now - began) / number if number else 0.0
        if progress is not None:
            progress(len(done) + number, total, min(pace * (len(left) - number), deadline - now), case.key)
        if case.key in skipped:
            continue
        for visit in _visit(case, device, bench, turn, _SLACK * (deadline - now) / (len(left) - number)):
            journal.append(visit)
            if visit.skipped:
                skipped.add(case.key)
    if progress is not None:
        progress(total, total, 0.0, "done")


def _visit(case: Case, device: Device, bench: Bench, turn: int, budget_s: float) -> list[Visit]:
    """One visit; two where the first drifted, and both are kept. One that says why where the shape does not fit."""
    visits: list[Visit] = []
    try:
        _measure(case, device, bench, turn, budget_s, visits)
    except Exception as error:
        reason = device.out_of_memory(error)
        if reason is None and (fault := device.failure(error)) is not None:
            raise _DeviceError(f"{device.name} failed at {case.key}: {fault};") from error
        if reason is None:
            raise
        visits.append(Visit(case.key, turn, "", (), skipped=reason))
    return visits


def _measure(
    case: Case, device: Device, bench: Bench, turn: int, budget_s: float, visits: list[Visit]
) -> None:
    from ..kernels.subjects import subject
    from ..kernels.timing import measure

    name, calls = subject(case.operation, bench)
    for _ in range(2):
        timing = measure(
            calls,
            warmup_calls=2 if turn == 0 else 1,
            min_samples=3,
            max_samples=60,
            budget_s=max(budget_s, 1e-3),
            stopwatch=bench.stopwatch(case.operation),
        )
        warnings, seen = tuple(timing.warnings()), device.sample()
        visits.append(Visit(case.key, turn, name, timing.samples_s, timing.first_call_s, warnings, seen))
        if not timing.drifted:
            break
