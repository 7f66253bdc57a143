"""From a policy's integer code to its compiled functions: the one place where loops meet policies.

A loop calls these with the code as an ordinary integer (one compiled loop serves every policy), or with a
literal code (numba then compiles one specialised loop a policy). Both are found in numba's cache on disk,
which function arguments and closures are not. The policies that stand here are part of every loop; the others are
called (`switch_called.py`).
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from . import belady, clock, fifo, least_stale, lfru, lfu, lru, random_choice, sieve
from .switch_called import more_begin, more_evict, more_hit, more_insert, more_victim

FIFO, LRU, LFU, LFRU, CLOCK, SIEVE, RANDOM, LEAST_STALE, STATIC, NEVER, UNBOUNDED, BELADY, BELADY_BYPASS = (
    range(13)
)
FIRST_CALLED = 13  # policies from this code on stand in switch_called.py


@inlined
def begin_event(code: int, s: Any, plan: Any) -> None:
    """A new event starts; `s.clock` already says which, `plan` who is needed."""
    if code == LEAST_STALE:
        least_stale.begin_event(s)
    elif code >= FIRST_CALLED:
        more_begin(code, s, plan)


@inlined
def on_hit(code: int, s: Any, x: int, pool: int) -> None:
    """A resident expert is used."""
    if code == LRU:
        lru.hit(s, x, pool)
    elif code == LFU:
        lfu.hit(s, x, pool)
    elif code == LFRU:
        lfru.hit(s, x)
    elif code == CLOCK:
        clock.hit(s, x)
    elif code == SIEVE:
        sieve.hit(s, x)
    elif code == LEAST_STALE:
        least_stale.hit(s, x)
    elif code in (BELADY, BELADY_BYPASS):
        belady.touch(s, x)
    elif code >= FIRST_CALLED:
        more_hit(code, s, x, pool)


@inlined
def on_insert(code: int, s: Any, x: int, pool: int, for_next_pass: bool) -> None:
    """An expert has been given a slot (SLOT is set): by a miss, or by a prefetch."""
    if code in (FIFO, LRU):
        fifo.insert(s, x, pool)
    elif code == LFU:
        lfu.insert(s, x, pool)
    elif code == LFRU:
        lfru.insert(s, x)
    elif code == CLOCK:
        clock.insert(s, x)
    elif code == SIEVE:
        sieve.insert(s, x, pool)
    elif code == LEAST_STALE:
        least_stale.insert(s, x, for_next_pass)
    elif code in (BELADY, BELADY_BYPASS):
        belady.touch(s, x)
    elif code >= FIRST_CALLED:
        more_insert(code, s, x, pool)


@inlined
def on_evict(code: int, s: Any, x: int, pool: int) -> None:
    """An expert is about to lose its slot (SLOT is still set)."""
    if code in (FIFO, LRU):
        fifo.evict(s, x)
    elif code == LFU:
        lfu.evict(s, x, pool)
    elif code == SIEVE:
        sieve.evict(s, x, pool)
    elif code == LEAST_STALE:
        least_stale.evict(s, x)
    elif code in (BELADY, BELADY_BYPASS):
        belady.evict(s, x)
    elif code >= FIRST_CALLED:
        more_evict(code, s, x, pool)


@inlined
def victim(code: int, s: Any, pool: int, newcomer: int) -> int:
    """Who goes from a pool that is full, for this newcomer: an unpinned resident expert, −1 when there is none."""
    if code in (FIFO, LRU):
        return fifo.victim(s, pool)
    if code == LFU:
        return lfu.victim(s, pool)
    if code == LFRU:
        return lfru.victim(s, pool)
    if code == CLOCK:
        return clock.victim(s, pool)
    if code == SIEVE:
        return sieve.victim(s, pool)
    if code == RANDOM:
        return random_choice.victim(s, pool)
    if code == LEAST_STALE:
        return least_stale.victim(s, pool)
    if code in (BELADY, BELADY_BYPASS):
        return belady.victim(s, pool)
    if code >= FIRST_CALLED:
        return more_victim(code, s, pool, newcomer)
    return -1  # static and never evict nothing; unbounded never has to


@inlined
def admits(code: int, s: Any, x: int) -> bool:
    """Whether a missed expert may take a slot at all."""
    return code not in (STATIC, NEVER)


@inlined
def needs_clock(code: int) -> bool:
    """Whether the policy reads which event it is."""
    return code in (LFRU, BELADY, BELADY_BYPASS) or code >= FIRST_CALLED


@inlined
def may_stream(code: int) -> bool:
    """Whether a missed expert may be computed without ever getting a slot."""
    return code in (STATIC, NEVER, BELADY_BYPASS)


@inlined
def prefers(code: int, s: Any, x: int, victim: int) -> bool:
    """Whether a missed expert that is allowed in should take this victim's slot."""
    return code != BELADY_BYPASS or belady.worth_admitting(s, x, victim)
