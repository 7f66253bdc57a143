"""The study behind a measured comparison of designs: small models of each, trained on the same text, several seeds.

designs × seeds ─► jobs not yet in the journal ─► processes of one thread ─► journal ─► losses, intervals, verdicts

A killed run loses the time since the last checkpoint of the jobs that were running (a minute), and no result.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import RunError, UsageError, unknown_name
from ..files import written_whole
from ..sim.active_flops import active_flops
from ..sim.model import ModelSpec, ffn_name
from .executors import one_thread_each
from .journal import Contents, Journal, read_journal, rows_at
from .train_result import KIND, SCHEMA, TrainedDesign, TrainedDesigns
from .train_worker import Job, Shared, begin, hash_of, run_job, spec_facts

if TYPE_CHECKING:
    from ..kernels.training.corpus import Corpus
    from ..kernels.training.recipe import Recipe

Progress = Callable[[int, int, str], None]
_JOURNAL = "journal.jsonl"
_LOOK_EVERY_S = 0.5


def train_designs(
    designs: Mapping[str, ModelSpec],
    *,
    tokens: int,
    seeds: Sequence[int],
    out: str | Path,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    base: str | None = None,
    corpus: Corpus | None = None,
    recipe: Recipe | None = None,
    save_every_s: float = 60.0,
) -> TrainedDesigns:
    """Train every design at every seed into the folder `out`, and compare their losses on held-out text with the base's.

    Each run sees `tokens` tokens (rounded up to whole steps) of `corpus` (None: the Python standard library, bytes); at
    one seed all designs see the same ones in the same order. `base` is the name of the design the others are compared
    with (None: the first). `workers` processes of one thread each (None: as many as there are cores).

    With `resume` runs that the journal in `out` holds are not run again, running ones go on from their checkpoints, and
    designs and seeds may be added. The losses are bit for bit those of an uninterrupted set on the same machine. At Ctrl-C
    the running jobs save their state before the interrupt goes on. `progress` is told (tokens trained, in all, pace).

    Raises `UsageError` before anything runs: a design that cannot be trained here, no design or seed, a folder that holds
    another set or one made from other inputs (naming them). Raises `RunError` where the disk refuses or a process dies. A
    run whose loss becomes no number is a row with its error.
    """
    from ..kernels.training.corpus import stdlib_corpus
    from ..kernels.training.recipe import Recipe, check_trainable

    text, recipe, folder = corpus or stdlib_corpus(), recipe or Recipe(), Path(out)
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    _check(designs, seeds, workers, base)
    for name, spec in designs.items():
        try:
            check_trainable(spec, text.vocab)
        except UsageError as error:
            raise UsageError(f"design {name!r}: {error}") from error
    per_run = recipe.steps(tokens) * recipe.tokens_per_step
    facts = {
        "version": __version__, "torch": version("torch"), "tokens": per_run, "corpus": text.facts(),
        "recipe": asdict(recipe),
    }  # fmt: skip
    jobs = _jobs(designs, seeds, facts)
    contents = _prepare(folder, facts, jobs, resume)
    started = time.monotonic()
    left = [job for job in jobs if job.key not in contents.places]
    (folder / "run.json").unlink(missing_ok=True)  # until this set is finished, there is none
    context = get_context("spawn")
    shared = Shared(
        os.getpid(), text, recipe, tokens, folder / "checkpoints", save_every_s, context.RawValue("b", 0),
        context.RawArray("q", len(jobs)),
    )  # fmt: skip
    for job in jobs:
        if job.key in contents.places:
            shared.trained[job.place] = per_run
            # left behind by a kill right after the row was written
            _checkpoint(folder, job.key).unlink(missing_ok=True)
    with Journal(folder / _JOURNAL, {"kind": KIND, "schema": SCHEMA, "facts": facts}, contents) as journal:
        pace = _Pace(shared.trained, per_run * len(jobs), len(jobs) - len(left), len(jobs), progress)
        for row in _rows(left, shared, min(workers, max(1, len(left))), pace):
            journal.append([row])
            _checkpoint(folder, row["scenario"]).unlink(missing_ok=True)
            pace.finished += 1
    with contextlib.suppress(OSError):
        shared.folder.rmdir()  # stays where it holds the states of other jobs
    found = {row["scenario"]: row for row in rows_at(folder / _JOURNAL, list(contents.places.values()))}
    result = TrainedDesigns(
        folder, base or next(iter(designs)),
        tuple(_design(name, spec, [(job.seed, found[job.key]) for job in jobs if job.design == name], recipe.context)
              for name, spec in designs.items()),
        facts, tuple(seeds), time.monotonic() - started, len(left),
    )  # fmt: skip
    with written_whole(folder / "run.json") as part:
        document = json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        part.write_text(document + "\n", encoding="utf-8")
    return result


def _check(designs: Mapping[str, ModelSpec], seeds: Sequence[int], workers: int, base: str | None) -> None:
    if not designs:
        raise UsageError("no design to train")
    if base is not None and base not in designs:
        raise unknown_name("design", base, designs)
    if not seeds:
        raise UsageError("no seed to train with")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UsageError(f"seeds must differ and be 0 or more, got {', '.join(map(str, seeds))}")
    if workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")


def _jobs(designs: Mapping[str, ModelSpec], seeds: Sequence[int], facts: Mapping[str, Any]) -> list[Job]:
    """Seed by seed, so that whoever stops early has pairs."""
    jobs: list[Job] = []
    for seed in seeds:
        for name, spec in designs.items():
            shape = hash_of(spec_facts(spec))
            key = hash_of({"facts": facts, "design": name, "spec": shape, "seed": seed})
            jobs.append(Job(key, len(jobs), name, spec, shape, seed))
    return jobs


def _checkpoint(folder: Path, key: str) -> Path:
    return folder / "checkpoints" / f"{key}.pt"


def _prepare(folder: Path, facts: Mapping[str, Any], jobs: Sequence[Job], resume: bool) -> Contents:
    """Make the folder, and say what its journal holds. Raises `UsageError` where it is of other inputs."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"cannot write {folder}: it is a file, expected a directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error
    path = folder / _JOURNAL
    if path.exists() and not resume:
        raise UsageError(
            f"{folder} holds trained designs already: --resume goes on, another --out starts afresh"
        )
    contents = read_journal(path)
    header = contents.header
    if header is None:
        return contents
    if header.get("kind") != KIND or header.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no journal of {KIND} of schema {SCHEMA}")
    reasons = list(_changes(header["facts"], json.loads(json.dumps(facts))))
    shapes = {job.design: job.spec_hash for job in jobs}
    there = {row["design"]: row["spec"] for row in rows_at(path, list(contents.places.values()))}
    reasons += [
        f"design {name!r} has another shape"
        for name in shapes
        if there.get(name, shapes[name]) != shapes[name]
    ]
    if reasons:
        raise UsageError(
            f"{folder} cannot be resumed: {'; '.join(reasons)}. Undo the change, or start afresh with another --out"
        )
    return contents


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What differs, one text a field."""
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _changes(was, now, f"{prefix}{name} ")
        elif was != now:
            told = ("absent" if value is None else value for value in (was, now))
            yield f"{prefix}{name}: {next(told)} there, {next(told)} now"


class _Pace:
    """Tells the caller how far the runs are, at most twice a second."""

    def __init__(
        self, trained: Any, tokens: int, finished: int, runs: int, progress: Progress | None
    ) -> None:
        self._trained, self._tokens, self._runs, self._progress = trained, tokens, runs, progress
        self.finished = finished
        # A run that goes on from a checkpoint reports its whole count at its first step: the pace begins there.
        self._marks = [(time.monotonic(), sum(trained))]

    def tell(self) -> None:
        if self._progress is None:
            return
        now, count = time.monotonic(), sum(self._trained)
        self._marks = [*self._marks[-120:], (now, count)]
        began, before = self._marks[0]
        rate = (count - before) / max(now - began, 1e-9)
        text = f"{self.finished} of {self._runs} runs done"
        self._progress(count, self._tokens, f"{text}, {rate:,.0f} tokens/s" if count > before else text)


def _rows(jobs: Sequence[Job], shared: Shared, workers: int, pace: _Pace) -> Iterator[dict[str, Any]]:
    """Rows of finished jobs, in whatever order they come."""
    pace.tell()
    if not jobs:
        return
    with one_thread_each():
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=begin, initargs=(shared,))
        under_way: set[Future[dict[str, Any] | None]] = set()
        try:
            under_way = {pool.submit(run_job, job) for job in jobs}
            while under_way:
                ended, under_way = wait(under_way, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    row = future.result()
                    if row is not None:
                        yield row
                pace.tell()
        except BrokenProcessPool as error:
            raise RunError(
                f"a training process died (out of memory, or killed): {pace.finished} finished runs are kept, and --resume "
                "goes on from the last checkpoints of the others"
            ) from error
        except KeyboardInterrupt:
            shared.stop.value = 1
            for future in under_way:
                future.cancel()
            wait(under_way)
            for future in under_way:
                if not future.cancelled() and future.exception() is None and (row := future.result()):
                    yield row
            raise
        finally:
            shared.stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)


def _design(
    name: str, spec: ModelSpec, rows: Sequence[tuple[int, Mapping[str, Any]]], context: int
) -> TrainedDesign:
    ended = {seed: row for seed, row in rows if row["status"] == "ok"}
    flops = active_flops(spec, context)
    seconds = _mean([row["seconds"] for row in ended.values()])
    tokens = _mean([row["tokens"] for row in ended.values()])
    return TrainedDesign(
        name=name, shape="; ".join(sorted({ffn_name(layer.ffn) for layer in spec.layers})),
        total_params=spec.total_params, active_params=spec.active_params, flops_per_token=flops.weights,
        mixing_flops_per_token=flops.mixing or 0.0,
        losses={seed: row["held_out_loss"] for seed, row in ended.items()},
        errors={seed: row["error"] for seed, row in rows if row["status"] != "ok"},
        training_seconds=seconds,
        tokens_per_s=tokens / seconds if tokens and seconds else None,
        text_error=_mean([row["held_out_error"] for row in ended.values() if "held_out_error" in row]),
        balance=_mean([row["balance"] for row in ended.values() if "balance" in row]),
        curves={seed: tuple((at, loss) for at, loss in row["curve"]) for seed, row in ended.items()},
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
