"""Where scenarios run: in this process, in local processes, or (executors_dask.py) on a cluster.

An executor takes tasks one by one from an iterator and yields finished rows in whatever order they come. Batches grow
until one takes about half a second, so that scenarios of a millisecond are not eaten by the overhead of sending them.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from .sweep_inputs import Inputs
from .sweep_worker import Task, run_batch

Rows = list[dict[str, Any]]

_BATCH_S = 0.5
_MOST_IN_BATCH = 256
_ONE_THREAD = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Batches:
    """Cuts a stream of tasks into batches, from the pace that finished batches show."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks, self._size = tasks, 1

    def take(self) -> list[Task]:
        return list(itertools.islice(self._tasks, self._size))

    def learn(self, tasks: int, seconds: float) -> None:
        """A batch of `tasks` took this long."""
        wished = int(_BATCH_S * tasks / max(seconds, 1e-6))
        self._size = max(1, min(wished, 4 * self._size, _MOST_IN_BATCH))


def timed_batch(inputs: Inputs, tasks: Sequence[Task]) -> tuple[Rows, float]:
    """Rows, and the seconds they took."""
    started = time.perf_counter()
    rows = run_batch(inputs, tasks)
    return rows, time.perf_counter() - started


def run_here(inputs: Inputs, tasks: Iterator[Task]) -> Iterator[Rows]:
    """One after another in this process."""
    batches = Batches(tasks)
    while batch := batches.take():
        rows, seconds = timed_batch(inputs, batch)
        batches.learn(len(batch), seconds)
        yield rows


def run_in_processes(inputs: Inputs, tasks: Iterator[Task], workers: int) -> Iterator[Rows]:
    """In `workers` fresh processes of one thread each.

    A worker that dies costs no row: the scenarios that were on their way run again, one after another, and one that kills
    its process a second time is a failed row. At Ctrl-C what is running is finished and yielded, then the interrupt goes on.
    """
    batches = Batches(tasks)
    with one_thread_each():
        while True:
            lost: list[Task] = []
            yield from _one_pool(inputs, batches, workers, lost)
            if not lost:
                return
            yield from _one_by_one(inputs, lost)


def _one_pool(inputs: Inputs, batches: Batches, workers: int, lost: list[Task]) -> Iterator[Rows]:
    """Run until the tasks end, or until a worker dies: then `lost` holds what was on its way."""
    under_way: dict[Future[tuple[Rows, float]], list[Task]] = {}
    pool = _pool(workers)
    try:
        while True:
            while not lost and len(under_way) < workers + 2 and (batch := batches.take()):
                try:
                    under_way[pool.submit(timed_batch, inputs, batch)] = batch
                except BrokenProcessPool:
                    lost += batch
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                batch = under_way.pop(future)
                try:
                    rows, seconds = future.result()
                except BrokenProcessPool:
                    lost += batch
                    continue
                batches.learn(len(batch), seconds)
                yield rows
    except KeyboardInterrupt:
        for future in under_way:
            future.cancel()
        wait(under_way)
        for future in under_way:
            if not future.cancelled() and future.exception() is None:
                yield future.result()[0]
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_by_one(inputs: Inputs, tasks: Sequence[Task]) -> Iterator[Rows]:
    """Each by itself in one process, so that the one that kills it is known; it gets a row that says so."""
    pool = _pool(1)
    try:
        for task in tasks:
            try:
                yield pool.submit(run_batch, inputs, [task]).result()
            except BrokenProcessPool:
                error = "the worker process died, twice: out of memory, or killed"
                known = {name: value for name, value in task.point.items() if value is not None}
                yield [{"scenario": task.scenario, **known, "status": "failed", "error": error}]
                pool.shutdown(wait=True)
                pool = _pool(1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=begin_worker, initargs=(os.getpid(),)
    )


def begin_worker(parent: int) -> None:
    """In a new worker: Ctrl-C is the parent's business, and a worker whose parent was killed ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Children started meanwhile use one thread for numba and BLAS: as many processes as cores are enough."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
