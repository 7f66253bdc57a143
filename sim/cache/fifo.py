"""First in, first out: the entry that was brought in earliest goes; use does not matter."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import append, oldest_unpinned, unlink
from .state import pool_list


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    append(s.expert, x, pool_list(s, pool))


@inlined
def evict(s: Any, x: int) -> None:
    unlink(s.expert, x)


@inlined
def victim(s: Any, pool: int) -> int:
    return oldest_unpinned(s.expert, pool_list(s, pool))
