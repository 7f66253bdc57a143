"""Queues inside a pool, for policies that divide it: up to four, resident entries in some, remembered ones in others.

`expert[BIT, x]` says in which queue x stands (0: in none), the policy's first scalars of the pool hold the lengths.
A ghost is an expert that stands in a queue without a slot: its id is remembered, its weights are gone.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import append, oldest_unpinned, unlink
from .state import BIT, FURTHER_LISTS, NEXT, SCALAR, SLOT_END, SLOT_START, further_list

OWN_SCALAR = SCALAR + FURTHER_LISTS  # first row of pool that the lengths leave to the policy


@inlined
def places(s: Any, pool: int) -> int:
    """Slots of a pool: what shares of it and ghost lists are counted in."""
    return s.pool[SLOT_END, pool] - s.pool[SLOT_START, pool]


@inlined
def length(s: Any, pool: int, which: int) -> int:
    return s.pool[SCALAR + which - 1, pool] + 1  # a policy's scalars start at −1


@inlined
def join(s: Any, x: int, pool: int, which: int) -> None:
    """Put x, which stands nowhere, at the young end of a queue."""
    s.expert[BIT, x] = which
    append(s.expert, x, further_list(s, pool, which))
    s.pool[SCALAR + which - 1, pool] += 1


@inlined
def leave(s: Any, x: int, pool: int) -> None:
    which = s.expert[BIT, x]
    s.pool[SCALAR + which - 1, pool] -= 1
    s.expert[BIT, x] = 0
    unlink(s.expert, x)


@inlined
def move(s: Any, x: int, pool: int, which: int) -> None:
    """From wherever x stands to the young end of a queue."""
    leave(s, x, pool)
    join(s, x, pool, which)


@inlined
def oldest(s: Any, pool: int, which: int) -> int:
    """Who is first of a queue among those that may go, −1: nobody."""
    return oldest_unpinned(s.expert, further_list(s, pool, which))


@inlined
def trim(s: Any, pool: int, which: int, most: int) -> None:
    """Forget the oldest ghosts beyond `most`."""
    while length(s, pool, which) > max(most, 0):
        leave(s, s.expert[NEXT, further_list(s, pool, which)], pool)
