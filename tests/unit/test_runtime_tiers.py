"""Tiers and the copy thread: order, waiting, time limits, and what is said when a tier fails. Nothing hangs, nothing is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codesign.errors import RunError, UsageError
from codesign.kernels.runtime.copies import DEMAND, PREFETCH, Copies
from codesign.kernels.runtime.file_tier import FileTier, remove_leftovers
from codesign.kernels.runtime.loop import Runtime
from codesign.kernels.runtime.tiers import HostTier, PacedTier, Tier, aligned_bytes
from codesign.kernels.runtime.weights import random_weights
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Setup
from codesign.sim.ffn import MoeFfn
from codesign.sim.mixers import Attention
from codesign.sim.model import Layer, ModelSpec
from codesign.sim.passes import build_passes
from codesign.traces import synthesise

MODEL = ModelSpec(
    "small",
    "test",
    "test",
    64,
    50,
    (Layer(Attention(64, 4, 2, 16, 16), MoeFfn(64, 8, 2, 32), 128),) * 2,
    64,
    False,
)
WEIGHTS = random_weights(MODEL)
ROW = WEIGHTS.shape.row_bytes


class HeldTier:
    """Each fetch waits until it is let through; remembers the order."""

    name = "held"

    def __init__(self) -> None:
        self.gate, self.order = threading.Semaphore(0), []

    def start(self) -> None: ...

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        self.order.append(expert)
        assert self.gate.acquire(timeout=20)

    def close(self) -> None: ...


def ask(copies: Copies, *wishes: tuple[int, int, int]) -> None:
    with copies.together():
        for place, expert, kind in wishes:
            copies.request(place, expert, kind)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def test_demand_goes_before_prefetch_then_first_come_first_served() -> None:
    tier = HeldTier()
    copies = Copies(tier, [None] * 5, limit_s=10)
    ask(copies, (0, 10, PREFETCH), (1, 11, PREFETCH), (2, 12, DEMAND), (3, 13, DEMAND))
    tier.gate.release(4)
    until(lambda: len(copies.done) == 4)
    assert tier.order == [12, 13, 10, 11]
    copies.close()


def test_a_copy_in_flight_is_awaited_and_not_repeated_and_a_promoted_one_overtakes() -> None:
    tier = HeldTier()
    copies = Copies(tier, [None] * 4, limit_s=10)
    ask(copies, (0, 10, PREFETCH), (1, 11, PREFETCH), (2, 12, PREFETCH))
    until(lambda: tier.order == [10])
    with copies.together():
        assert copies.is_under_way(0, 10)
        copies.promote(0)  # already started: only waited for
        copies.promote(2)
    tier.gate.release(3)
    until(lambda: len(copies.done) == 3)
    assert tier.order == [10, 12, 11]
    copies.close()


def test_a_waiting_copy_whose_place_is_given_away_is_withdrawn_and_one_in_flight_is_not() -> None:
    tier = HeldTier()
    copies = Copies(tier, [None] * 2, limit_s=10)
    ask(copies, (0, 10, PREFETCH), (1, 11, PREFETCH))
    until(lambda: tier.order == [10])
    ask(copies, (0, 20, DEMAND), (1, 21, DEMAND))  # 20 comes after 10 to the same place; 11 is forgotten
    tier.gate.release(3)
    until(lambda: len(copies.done) == 3)
    assert tier.order == [10, 21, 20]
    assert copies.withdrawn == 1
    copies.close()


def test_a_tier_that_does_not_answer_is_an_error_within_the_limit_and_closing_does_not_hang() -> None:
    tier = HeldTier()
    copies = Copies(tier, [None], limit_s=0.2)
    ask(copies, (0, 7, DEMAND))
    began = time.monotonic()
    with pytest.raises(
        RunError, match=r"no expert arrived from the held tier within 0\.2 s \(under way: \[7\]\)"
    ):
        copies.wait()
    assert time.monotonic() - began < 5
    tier.gate.release()
    copies.close()


def test_any_failure_of_a_tier_reaches_the_computing_thread_as_a_run_error() -> None:
    class Broken(HeldTier):
        def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
            raise ValueError("bad cable")

    copies = Copies(Broken(), [None], limit_s=10)
    ask(copies, (0, 7, DEMAND))
    with pytest.raises(RunError, match="bad cable"):
        copies.wait()
    copies.close()


def test_each_tier_brings_exactly_the_experts_bytes(tmp_path: Path) -> None:
    tiers: list[Tier] = [
        HostTier(WEIGHTS),
        PacedTier(WEIGHTS, bytes_per_s=1e10, latency_s=0),
        FileTier(WEIGHTS, tmp_path),
    ]
    for tier in tiers:
        tier.start()
        for expert in (0, 5, 15):
            into = aligned_bytes(ROW)
            tier.fetch(expert, into, time.perf_counter_ns())
            np.testing.assert_array_equal(into, WEIGHTS.expert_row(expert))
        tier.close()
        tier.close()
    assert list(tmp_path.iterdir()) == []


def test_a_paced_link_is_never_quicker_than_its_bandwidth_and_latency() -> None:
    tier = PacedTier(WEIGHTS, bytes_per_s=ROW / 2e-3, latency_s=1e-3)
    into, began = aligned_bytes(ROW), time.perf_counter_ns()
    for expert in range(4):
        tier.fetch(expert, into, began)
    took_s = (time.perf_counter_ns() - began) / 1e9
    assert took_s >= 4 * 3e-3
    assert tier.copy_ns(ROW) == 3_000_000


@pytest.mark.parametrize(("bandwidth", "latency"), [(0, 0), (-1, 0), (1e9, -1), (float("nan"), 0)])
def test_a_paced_link_refuses_numbers_that_no_link_has(bandwidth: float, latency: float) -> None:
    with pytest.raises(UsageError, match="bytes_per_s above 0"):
        PacedTier(WEIGHTS, bytes_per_s=bandwidth, latency_s=latency)


def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=f"cannot write {16 * ROW} bytes of experts .*No space left"):
        FileTier(WEIGHTS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def run_on(tier: Tier, on_pass: Any) -> None:
    trace = synthesise(num_tokens=30, num_layers=2, num_experts=8, top_k=2, rng=np.random.default_rng(0))
    setup = Setup(policy("never"), np.array([0]), size_per_layer=np.full(2, ROW))
    with Runtime(MODEL, WEIGHTS, tier, limit_s=10) as runtime:
        runtime.run(BlockSource(trace, build_passes(trace)), setup, on_pass=on_pass)


def test_a_file_shorter_than_promised_is_a_clear_error(tmp_path: Path) -> None:
    tier = FileTier(WEIGHTS, tmp_path)
    os.truncate(tier.path, 0)
    with pytest.raises(RunError, match=f"shorter than promised: 0 of {16 * ROW} bytes"):
        run_on(tier, None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_removed_during_the_run_is_a_clear_error(tmp_path: Path) -> None:
    tier = FileTier(WEIGHTS, tmp_path)
    with pytest.raises(RunError, match="was removed during the run"):
        run_on(tier, lambda number: tier.path.unlink() if number == 3 else None)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_the_middle_removes_the_file_and_ends_the_thread(tmp_path: Path) -> None:
    tier = FileTier(WEIGHTS, tmp_path)

    def interrupt(number: int) -> None:
        if number == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_on(tier, interrupt)
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(thread.name == "expert copies" for thread in threading.enumerate()))


_KILLED = """
import sys
from pathlib import Path
from test_runtime_tiers import FileTier, WEIGHTS
FileTier(WEIGHTS, Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_run_leaves_is_removed_by_the_next_one(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{_KILLED}", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert remove_leftovers(tmp_path) == 0  # its owner lives
    process.kill()
    process.communicate(timeout=10)
    assert len(list(tmp_path.iterdir())) == 1
    FileTier(WEIGHTS, tmp_path).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
def test_the_cuda_tier_brings_the_experts_bytes_to_the_device() -> None:
    import torch
    from codesign.kernels.runtime.cuda_tier import CudaTier

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tier, into = CudaTier(WEIGHTS), torch.zeros(ROW, dtype=torch.uint8, device="cuda")
    tier.start()
    tier.fetch(5, into, 0)
    np.testing.assert_array_equal(into.cpu().numpy(), WEIGHTS.expert_row(5))
    tier.close()


def test_without_a_cuda_device_the_cuda_tier_says_what_runs_instead() -> None:
    import torch
    from codesign.kernels.runtime.cuda_tier import CudaTier

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(RunError, match="host, paced and file can"):
        CudaTier(WEIGHTS)
