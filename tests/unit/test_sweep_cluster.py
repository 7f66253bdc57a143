"""A Dask cluster leaves the same bytes as one process, also when a worker is lost in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from codesign.workbench.sweep import sweep
from small_studies import tables, write_study

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@pytest.mark.filterwarnings("default")  # what Dask itself warns of at its start and end is not ours
def test_a_local_cluster_that_loses_a_worker_leaves_the_bytes_of_one_process(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    sweep(study, out=tmp_path / "one", workers=1)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        killed = []

        def kill_one(done: int, total: int, pace: str) -> None:
            if done >= 3 and not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        sweep(study, out=tmp_path / "many", cluster=cluster.scheduler_address, progress=kill_one)
    assert killed
    assert tables(tmp_path / "many") == tables(tmp_path / "one")
