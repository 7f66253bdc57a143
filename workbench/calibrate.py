"""Calibrate: measure this machine's kernels on a grid of shapes, journalled as they come, and make a profile of them.

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
from .calibration_journal import Journal, Visit, open_journal
from .calibration_model import model_operations
from .calibration_plan import Case, Limits, plan
from .calibration_points import save_roof
from .calibration_result import CalibrationResult, collect

if TYPE_CHECKING:
    from ..kernels.subjects import Bench
    from ..sim.model import ModelSpec

Progress = Callable[[int, int, float, str], None]
"""(visits done, visits in all, seconds left by the pace so far, what is measured now)"""

_SUITES: Mapping[str, tuple[float, float, int]] = {"quick": (90.0, 0.03, 3), "full": (1800.0, 0.2, 7)}
"""Suite → seconds, longest call in seconds, rounds."""
_ARENA_SHARE = 8  # of the memory: the other seven parts are other people's
_NOMINAL_FLOPS_PER_S, _NOMINAL_BYTES_PER_S = 100e9, 10e9
"""Of one thread, order of magnitude: they only bound what is planned, which a resumed run must plan again alike."""
_LARGEST_ARENA_BYTES = 2**31
_STORAGE_FILE_BYTES = 2**28
_FALLBACK_CACHE_BYTES = 2**25
_SLACK = 0.8  # of the wall time left is planned for visits; the rest goes into making arrays


@dataclass(frozen=True, slots=True)
class Settings:
    """How a calibration measures; what two runs must share to be one (its header)."""

    suite: str
    threads: int
    rounds: int
    operations: tuple[str, ...]
    seed: int
    model: str

    def header(self, environment: Mapping[str, Any]) -> dict[str, Any]:
        from ..kernels.environment import TIMES_DEPEND_ON

        machine = {name: environment[name] for name in TIMES_DEPEND_ON if name in environment}
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
    suite: str = "quick",
    operations: Sequence[str] = (),
    threads: int | None = None,
    rounds: int | None = None,
    budget_s: float | None = None,
    resume: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> CalibrationResult:
    """Measure this machine's processor into the directory `out`: `journal.jsonl`, a table an operation, and `profile.toml`.

    `model`: its own shapes are measured beside the grid, and fitted.
    `threads` (all usable cores if None) are set explicitly and pinned. `budget_s` bounds the measuring; what it did
    not reach is listed in the result and measured when the same call is made again. With `resume` a journal that is there
    goes on. Raises `UsageError` for settings or a journal that do not fit, `RunError` where the disk refuses or the
    user interrupts: the journal keeps all that was measured.
    """
    from ..kernels.arena import Arena
    from ..kernels.environment import environment, last_level_cache_bytes, pinned, usable_cores
    from ..kernels.registry import kernel
    from ..kernels.roof import measure_roof
    from ..kernels.subjects import Bench
    from ..sim.catalog import load_model

    if suite not in _SUITES:
        plan(suite, Limits(1.0, 1.0, 1.0, 1))  # raises the error that names the suites
    default_s, longest_s, default_rounds = _SUITES[suite]
    limit_s, rounds = budget_s or default_s, rounds or default_rounds
    if limit_s <= 0 or rounds < 1:
        raise UsageError(f"budget_s must be above 0 and rounds at least 1, got {limit_s} and {rounds}")
    spec = load_model(model) if isinstance(model, str | Path) else model
    name = "" if spec is None else spec.name
    settings = Settings(suite, threads or len(usable_cores()), rounds, tuple(operations), seed, name)
    facts = environment(settings.threads)
    folder = Path(out)
    with ExitStack() as stack:
        journal = stack.enter_context(
            open_journal(folder / "journal.jsonl", settings.header(facts.to_dict()), resume=resume)
        )
        memory = facts.memory_bytes or 2**33
        arena = Arena(min(_LARGEST_ARENA_BYTES, memory // _ARENA_SHARE))
        kernel("gemm").load("cpu")  # torch and numba must be there before their threads can be set
        stack.enter_context(pinned(settings.threads))
        file = (
            stack.enter_context(_storage_file(folder))
            if "storage_read" in (operations or ("storage_read",))
            else None
        )
        bench = Bench(arena, last_level_cache_bytes() or _FALLBACK_CACHE_BYTES, file)
        roof = measure_roof(bench)
        limits = Limits(
            _NOMINAL_FLOPS_PER_S * settings.threads,
            _NOMINAL_BYTES_PER_S * settings.threads,
            longest_s,
            arena.size_bytes,
        )
        wanted = [] if spec is None else model_operations(spec, full=suite == "full")
        cases = plan(suite, limits, operations=operations, with_storage=file is not None, wanted=wanted)
        try:
            _visit_all(cases, bench, journal, settings, time.perf_counter() + limit_s, progress)
            roof = roof.best_with(measure_roof(bench))  # neighbours may have been busy at the start
            save_roof(roof, folder)
        except KeyboardInterrupt as stop:
            raise RunError(
                f"interrupted after {len(journal.visits)} visits; they are kept in {journal.path}, the same command goes on"
            ) from stop
    _, result = fit_and_check(collect(cases, journal.visits, roof, facts.to_dict(), folder))
    return result


def _visit_all(
    cases: Sequence[Case],
    bench: Bench,
    journal: Journal,
    settings: Settings,
    deadline: float,
    progress: Progress | None,
) -> None:
    """All cases of a round before the next one; every visit is on disk before the next begins."""
    import numpy as np

    done = journal.done()
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
        for visit in _visit(case, bench, turn, _SLACK * (deadline - now) / (len(left) - number)):
            journal.append(visit)
    if progress is not None:
        progress(total, total, 0.0, "done")


def _visit(case: Case, bench: Bench, turn: int, budget_s: float) -> list[Visit]:
    """One visit; two where the first drifted. Both are kept."""
    from ..kernels.subjects import subject
    from ..kernels.timing import measure

    name, calls = subject(case.operation, bench)
    visits = []
    for _ in range(2):
        timing = measure(
            calls,
            warmup_calls=2 if turn == 0 else 1,
            min_samples=3,
            max_samples=60,
            budget_s=max(budget_s, 1e-3),
        )
        visits.append(
            Visit(case.key, turn, name, timing.samples_s, timing.first_call_s, tuple(timing.warnings()))
        )
        if not timing.drifted:
            break
    return visits


def _storage_file(folder: Path) -> Any:
    """A fresh file to read past the page cache, or a context of None where the file system refuses that."""
    import contextlib
    import os
    import tempfile

    from ..kernels.cpu.storage_read import MIB, direct_file

    @contextlib.contextmanager
    def opened() -> Any:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".storage-") as stream:
                for _ in range(_STORAGE_FILE_BYTES // MIB):
                    stream.write(os.urandom(MIB))
                stream.flush()
                os.fsync(stream.fileno())
                with contextlib.ExitStack() as stack:
                    try:
                        file = stack.enter_context(direct_file(stream.name, 64 * MIB))
                    except RunError:
                        file = None
                    yield file
        except OSError as error:
            raise RunError(f"cannot write {folder}: {error.strerror or error}") from error

    return opened()
