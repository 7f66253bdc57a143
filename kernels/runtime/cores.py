"""Computing and copying each on a core of its own, where there are two.

Woken on the same core, the copy thread interrupts the arithmetic it was to run beside: on a busy machine with two cores
asking for a copy was seen to take 4 ms instead of 20 µs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from ..environment import usable_cores


def copy_core() -> int | None:
    """The core that copies run on: the last usable one; None where there is only one or the system does not say."""
    cores = usable_cores()
    return cores[-1] if len(cores) > 1 and hasattr(os, "sched_setaffinity") else None


def move_this_thread(core: int | None) -> None:
    """To one core; nothing where `core` is None or the system refuses."""
    if core is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def computing(switch_s: float = 1e-4) -> Iterator[None]:
    """This thread on the first usable core, one thread of torch and numba, and the interpreter handed over quickly.

    Python's own 5 ms between hand-overs would be longer than a copy.
    """
    import numba
    import torch

    cores, interval = usable_cores(), sys.getswitchinterval()
    threads = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    sys.setswitchinterval(switch_s)
    try:
        if copy_core() is not None:
            move_this_thread(cores[0])
        yield
    finally:
        sys.setswitchinterval(interval)
        torch.set_num_threads(threads[0])
        numba.set_num_threads(threads[1])
        if copy_core() is not None or len(cores) > 1:
            with contextlib.suppress(OSError, AttributeError):
                os.sched_setaffinity(0, set(cores))
