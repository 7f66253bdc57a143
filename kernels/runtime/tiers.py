"""Where experts live that are not in a slot: one interface, and the two tiers in host memory.

A tier's `fetch` is called by the copy thread alone, one copy at a time, and returns when the bytes are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import RunError, UsageError
from .weights import Weights

Clock = Callable[[], int]
"""Nanoseconds that only go forward."""
_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_SPIN_NS = 60_000  # sleeps on Linux end up to some 50 µs late; the rest of a wait is spun through


class Tier(Protocol):
    """A slow home of experts."""

    name: str

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        """Fill `into` ([row_bytes] uint8: an array, on CUDA a tensor) with the expert's row.

        `asked_ns` is when the copy was asked for. Raises `RunError` where the tier fails.
        """

    def start(self) -> None:
        """Called once by the copy thread before its first fetch."""

    def close(self) -> None:
        """Give back files and memory. May be called twice."""


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a page, as reads past the page cache demand. Raises `RunError` where there is none."""
    try:
        return np.frombuffer(mmap.mmap(-1, count), np.uint8)
    except (OSError, ValueError, OverflowError) as error:
        raise RunError(f"no memory for {count} bytes: {error}") from error


class HostTier:
    """Host memory; a copy is one memory copy by the copy thread."""

    name = "host"

    def __init__(self, weights: Weights) -> None:
        self.rows_XE = aligned_bytes(weights.experts_in_all * weights.shape.row_bytes).reshape(
            -1, weights.shape.row_bytes
        )
        for expert in range(weights.experts_in_all):
            self.rows_XE[expert] = weights.expert_row(expert)

    def start(self) -> None:
        """Nothing to prepare."""

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        np.copyto(into, self.rows_XE[expert])  # gives the interpreter to the others while it copies

    def close(self) -> None:
        self.rows_XE = np.zeros((0, 0), np.uint8)


class PacedTier(HostTier):
    """Host memory behind a link of a stated bandwidth and latency, kept by a token bucket without burst.

    A copy takes `latency_s` + bytes ÷ `bytes_per_s` from when it was asked for or the copy before it ended, whichever is
    later: as a DMA engine would take its next descriptor, however late the thread wakes. The copy itself must be quicker.
    """

    name = "paced"

    def __init__(
        self, weights: Weights, *, bytes_per_s: float, latency_s: float, clock: Clock = time.perf_counter_ns
    ) -> None:
        if not bytes_per_s > 0 or not 0 <= latency_s < 10:
            raise UsageError(
                f"a paced link needs bytes_per_s above 0 and latency_s from 0 to 10, got {bytes_per_s} and {latency_s}"
            )
        super().__init__(weights)
        self.bytes_per_s, self.latency_s, self._clock = bytes_per_s, latency_s, clock
        self._free_ns = 0
        self.overruns = 0
        """Copies that took the thread longer than the link would have."""

    def start(self) -> None:
        """Let this thread's sleeps end on time where the system allows it."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def copy_ns(self, count: int) -> int:
        """What one copy of `count` bytes takes on an idle link."""
        return round((self.latency_s + count / self.bytes_per_s) * 1e9)

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        done_ns = max(asked_ns, self._free_ns) + self.copy_ns(into.nbytes)
        super().fetch(expert, into, asked_ns)
        now = self._clock()
        self.overruns += now > done_ns
        while now < done_ns:
            if done_ns - now > _SPIN_NS:
                time.sleep((done_ns - now - _SPIN_NS) / 1e9)
            else:
                time.sleep(0)  # gives the interpreter away
            now = self._clock()
        self._free_ns = max(now, done_ns) if now - done_ns > _SPIN_NS else done_ns
