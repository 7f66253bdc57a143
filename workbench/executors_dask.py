"""Scenarios on a Dask cluster: the same batches, the same rows. Only here is Dask imported, when it is asked for.

The workers need the same version of the program, and the run's folder and traces under the same paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import RunError, UsageError
from .executors import Batches, Rows, timed_batch
from .sweep_inputs import Inputs, program_version
from .sweep_worker import Task

_RETRIES = 3  # of a batch whose worker was lost
_PATIENCE_S = 30


def run_on_cluster(inputs: Inputs, tasks: Iterator[Task], address: str) -> Iterator[Rows]:
    """On the workers of the scheduler at `address`. A lost worker's batches run again on another one."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise UsageError("--cluster needs Dask: pip install 'codesign-workbench[cluster]'") from error
    try:
        client = Client(address, timeout=_PATIENCE_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RunError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        _check_versions(client, inputs, address)
        batches = Batches(tasks)
        sizes: dict[str, int] = {}
        running = as_completed(with_results=True, raise_errors=True, loop=client.loop)
        threads = max(1, sum(client.nthreads().values()))
        empty = False
        while True:
            while not empty and len(sizes) < 2 * threads + 2:
                batch = batches.take()
                empty = not batch
                if batch:
                    future = client.submit(timed_batch, inputs, batch, pure=False, retries=_RETRIES)
                    sizes[future.key] = len(batch)
                    running.add(future)
            if not sizes:
                return
            future, (rows, seconds) = next(running)
            batches.learn(sizes.pop(future.key), seconds)
            yield rows


def _check_versions(client: Any, inputs: Inputs, address: str) -> None:
    client.wait_for_workers(1, timeout=_PATIENCE_S)
    other = {where: found for where, found in client.run(program_version).items() if found != inputs.version}
    if other:
        where, found = next(iter(other.items()))
        raise UsageError(f"the worker {where} of {address} has version {found}, and this is {inputs.version}")
