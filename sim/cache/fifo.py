"""First in, first out: the entry that was brought in earliest goes; use does not matter."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import append, oldest_unpinned, unlink


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    append(s.chain, x, s.slot_of.shape[0] + pool)


@inlined
def evict(s: Any, x: int) -> None:
    unlink(s.chain, x)


@inlined
def victim(s: Any, pool: int) -> int:
    return oldest_unpinned(s.chain, s.pin, s.slot_of.shape[0] + pool)
