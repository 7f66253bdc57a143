"""Least recently used: the entry whose last use is longest ago goes. Eviction and insertion are FIFO's."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import append, unlink
from .state import PREVIOUS, pool_list


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    head = pool_list(s, pool)
    if s.expert[PREVIOUS, head] != x:  # the youngest stays where it is
        unlink(s.expert, x)
        append(s.expert, x, head)
