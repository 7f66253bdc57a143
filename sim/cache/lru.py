"""Least recently used: the entry whose last use is longest ago goes. Eviction and insertion are FIFO's."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import PREVIOUS, append, unlink


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    sentinel = s.slot_of.shape[0] + pool
    if s.chain[PREVIOUS, sentinel] != x:  # the youngest stays where it is
        unlink(s.chain, x)
        append(s.chain, x, sentinel)
