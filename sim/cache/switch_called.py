"""The policies that loops call instead of containing: the same switch, one level down.

Every policy that is part of the loops makes each of them larger and slower to compile, so only those stand there whose
speed is compared with other simulators. A call costs some ten nanoseconds.
"""

from __future__ import annotations

from typing import Any

from ..compiled import called
from . import activation, arc, gdsf, hobbit, lhu, lirs, lowest, s3_fifo, score, slru, two_queue, w_tinylfu

S3_FIFO, TWO_QUEUE, SLRU, ARC, LFUDA, GDSF, W_TINYLFU, SCORE, LHU, ACTIVATION, LIRS, HOBBIT = range(13, 25)


@called
def more_begin(code: int, s: Any, plan: Any) -> None:
    """A new event starts, and its members are known; those with gate weights only where the policy needs them."""
    if code == SCORE:
        score.begin_event(s, plan, plan.seen.shape[0])
    elif code == LHU:
        lhu.begin_event(s, plan)
    elif code == HOBBIT:
        hobbit.begin_event(s, plan)


@called
def more_hit(code: int, s: Any, x: int, pool: int) -> None:
    if code == S3_FIFO:
        s3_fifo.hit(s, x)
    elif code == TWO_QUEUE:
        two_queue.hit(s, x, pool)
    elif code == SLRU:
        slru.hit(s, x, pool)
    elif code == ARC:
        arc.hit(s, x, pool)
    elif code in (LFUDA, GDSF):
        gdsf.hit(s, x, pool, code == GDSF)
    elif code == W_TINYLFU:
        w_tinylfu.hit(s, x, pool)
    elif code == SCORE:
        score.use(s, x)
    elif code == LHU:
        lhu.hit(s, x)
    elif code == ACTIVATION:
        activation.use(s, x)
    elif code == LIRS:
        lirs.hit(s, x, pool)


@called
def more_insert(code: int, s: Any, x: int, pool: int) -> None:
    if code == S3_FIFO:
        s3_fifo.insert(s, x, pool)
    elif code == TWO_QUEUE:
        two_queue.insert(s, x, pool)
    elif code == SLRU:
        slru.insert(s, x, pool)
    elif code == ARC:
        arc.insert(s, x, pool)
    elif code in (LFUDA, GDSF):
        gdsf.insert(s, x, pool, code == GDSF)
    elif code == W_TINYLFU:
        w_tinylfu.insert(s, x, pool)
    elif code == SCORE:
        score.use(s, x)
    elif code == LHU:
        lhu.insert(s, x)
    elif code == ACTIVATION:
        activation.use(s, x)
    elif code == LIRS:
        lirs.insert(s, x, pool)


@called
def more_evict(code: int, s: Any, x: int, pool: int) -> None:
    if code == S3_FIFO:
        s3_fifo.evict(s, x, pool)
    elif code == TWO_QUEUE:
        two_queue.evict(s, x, pool)
    elif code == SLRU:
        slru.evict(s, x, pool)
    elif code == ARC:
        arc.evict(s, x, pool)
    elif code in (LFUDA, GDSF):
        gdsf.evict(s, x, pool)
    elif code == W_TINYLFU:
        w_tinylfu.evict(s, x, pool)
    elif code == LIRS:
        lirs.evict(s, x, pool)


@called
def more_victim(code: int, s: Any, pool: int, newcomer: int) -> int:
    if code == S3_FIFO:
        return s3_fifo.victim(s, pool)
    if code == TWO_QUEUE:
        return two_queue.victim(s, pool)
    if code == SLRU:
        return slru.victim(s, pool)
    if code == ARC:
        return arc.victim(s, pool, newcomer)
    if code in (LFUDA, GDSF, SCORE, LHU):
        return lowest.lowest_priority(s, pool)
    if code == ACTIVATION:
        return activation.victim(s, pool)
    if code == W_TINYLFU:
        return w_tinylfu.victim(s, pool)
    if code == LIRS:
        return lirs.victim(s, pool)
    if code == HOBBIT:
        return hobbit.victim(s, pool)
    return -1
