"""The copy path of the fast engine: queues and servers between storage, host and device, in compiled code.

Every device place (slot, staging or workspace) has at most one copy *started* and one *pending*. Copies start in
order: demand before prefetch, then who joined the queue first. A started copy is never interrupted. A pending
copy whose place is given to another expert is withdrawn: nobody could read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled, inlined

DEMAND, PREFETCH = 0, 1
FIRST, SECOND = 0, 1  # queues: before the first hop; between storage and host link
_NOT_STARTED, _ON_STORAGE, _BETWEEN, _ON_LINK = range(4)
FAR = 2**62  # later than any time
# Columns of CopyPath.total
LINK_BUSY, STORAGE_BUSY, WITHDRAWN, WITHDRAWN_BYTES, COPIES = range(5)


class CopyPath(NamedTuple):
    """J places, E copy engines."""

    pending: NDArray[np.int32]  # [J] expert, −1 none
    pending_class: NDArray[np.int8]  # [J]
    blocked: NDArray[np.uint8]  # [J] 1: pending behind a started copy to the same place
    started: NDArray[np.int32]  # [J] expert, −1 none
    started_class: NDArray[np.int8]  # [J]
    stage: NDArray[np.uint8]  # [J]
    after: NDArray[np.int32]  # [2, J + 2] the two queues, each with one list per class
    before: NDArray[np.int32]  # [2, J + 2]
    link_until: NDArray[np.int64]  # [E]
    link_place: NDArray[np.int32]  # [E]
    storage_until: NDArray[np.int64]  # [1]
    storage_place: NDArray[np.int32]  # [1]
    link_ns: NDArray[np.int64]  # [L] one expert of a layer over the host link
    storage_ns: NDArray[np.int64]  # [L] one expert of a layer read from storage; empty when experts live on the host
    total: NDArray[np.int64]  # [5]


def new_path(places: int, engines: int, link_ns: NDArray[np.int64], storage_ns: NDArray[np.int64]) -> CopyPath:
    ring = np.tile(np.arange(places + 2, dtype=np.int32), (2, 1))
    return CopyPath(
        pending=np.full(places, -1, np.int32),
        pending_class=np.zeros(places, np.int8),
        blocked=np.zeros(places, np.uint8),
        started=np.full(places, -1, np.int32),
        started_class=np.zeros(places, np.int8),
        stage=np.zeros(places, np.uint8),
        after=ring.copy(),
        before=ring.copy(),
        link_until=np.full(engines, FAR, np.int64),
        link_place=np.full(engines, -1, np.int32),
        storage_until=np.full(1, FAR, np.int64),
        storage_place=np.full(1, -1, np.int32),
        link_ns=link_ns,
        storage_ns=storage_ns,
        total=np.zeros(5, np.int64),
    )


@inlined
def _join(c: Any, queue: int, place: int, kind: int) -> None:
    sentinel = c.pending.shape[0] + kind
    last = c.before[queue, sentinel]
    c.after[queue, last] = place
    c.before[queue, place] = last
    c.after[queue, place] = sentinel
    c.before[queue, sentinel] = place


@inlined
def _leave(c: Any, queue: int, place: int) -> None:
    before, after = c.before[queue, place], c.after[queue, place]
    c.after[queue, before] = after
    c.before[queue, after] = before


@inlined
def is_under_way(c: Any, place: int, x: int) -> bool:
    """Whether x was to come to this place and has not landed."""
    return c.pending[place] == x or c.started[place] == x


@inlined
def withdraw(c: Any, place: int, sizes: Any) -> None:
    """Forget the copy that waits for this place, if one does."""
    if c.pending[place] >= 0:
        size = sizes[c.pending[place]]
        if not c.blocked[place]:
            _leave(c, FIRST, place)
        c.pending[place] = -1
        c.blocked[place] = 0
        c.total[WITHDRAWN] += 1
        c.total[WITHDRAWN_BYTES] += size


@inlined
def promote(c: Any, place: int) -> None:
    """Whatever is on its way to this place is needed now: it joins the demand copies."""
    if c.pending[place] >= 0 and c.pending_class[place] == PREFETCH:
        c.pending_class[place] = DEMAND
        if not c.blocked[place]:
            _leave(c, FIRST, place)
            _join(c, FIRST, place, DEMAND)
    if c.started[place] >= 0 and c.started_class[place] == PREFETCH:
        c.started_class[place] = DEMAND
        if c.stage[place] == _BETWEEN:
            _leave(c, SECOND, place)
            _join(c, SECOND, place, DEMAND)


@inlined
def request(c: Any, place: int, x: int, kind: int) -> None:
    """Ask for a copy of x to a place that has no pending copy."""
    c.pending[place] = x
    c.pending_class[place] = kind
    if c.started[place] >= 0:
        c.blocked[place] = 1
        if kind == DEMAND:
            promote(c, place)
    else:
        _join(c, FIRST, place, kind)


@inlined
def _take(c: Any, queue: int) -> int:
    """The place whose copy is next in a queue, −1 when it is empty."""
    places = c.pending.shape[0]
    for kind in range(2):
        place = c.after[queue, places + kind]
        if place < places:
            _leave(c, queue, place)
            return place
    return -1


@inlined
def _start(c: Any, place: int) -> None:
    c.started[place] = c.pending[place]
    c.started_class[place] = c.pending_class[place]
    c.pending[place] = -1
    c.total[COPIES] += 1


@inlined
def dispatch(c: Any, now: int, experts_per_layer: int) -> None:
    """Let idle servers take their next copies; storage first, then the copy engines in index order."""
    has_storage = c.storage_ns.shape[0] > 0
    if has_storage and c.storage_place[0] < 0:
        place = _take(c, FIRST)
        if place >= 0:
            _start(c, place)
            c.stage[place] = _ON_STORAGE
            duration = c.storage_ns[c.started[place] // experts_per_layer]
            c.storage_place[0] = place
            c.storage_until[0] = now + duration
            c.total[STORAGE_BUSY] += duration
    for engine in range(c.link_place.shape[0]):
        if c.link_place[engine] >= 0:
            continue
        place = _take(c, SECOND if has_storage else FIRST)
        if place < 0:
            return
        if not has_storage:
            _start(c, place)
        c.stage[place] = _ON_LINK
        duration = c.link_ns[c.started[place] // experts_per_layer]
        c.link_place[engine] = place
        c.link_until[engine] = now + duration
        c.total[LINK_BUSY] += duration


@inlined
def next_completion(c: Any) -> int:
    soonest = c.storage_until[0]
    for engine in range(c.link_until.shape[0]):
        soonest = min(soonest, c.link_until[engine])
    return soonest


@inlined
def complete_one(c: Any, now: int) -> int:
    """Finish one hop that ends now; return the place where an expert landed, −1 none landed, −2 nothing ends now.

    Copy engines come before storage, in index order. After a landing `landed_expert` says who it was.
    """
    for engine in range(c.link_until.shape[0]):
        if c.link_until[engine] == now:
            place = c.link_place[engine]
            c.link_place[engine] = -1
            c.link_until[engine] = FAR
            c.stage[place] = _NOT_STARTED
            if c.blocked[place]:
                c.blocked[place] = 0
                _join(c, FIRST, place, c.pending_class[place])
            return place
    if c.storage_until[0] == now:
        place = c.storage_place[0]
        c.storage_place[0] = -1
        c.storage_until[0] = FAR
        c.stage[place] = _BETWEEN
        _join(c, SECOND, place, c.started_class[place])
        return -1
    return -2


@inlined
def landed_expert(c: Any, place: int) -> int:
    """Who landed at a place that `complete_one` returned; frees the place's record."""
    x = c.started[place]
    c.started[place] = -1
    return x


@compiled
def advance(c: Any, limit: int, experts_per_layer: int, since: int) -> None:
    """Run the copy path alone from `since` up to `limit`.

    Completions at `limit` happen, starts at `limit` do not: whoever decides at `limit` comes first.
    """
    now = since
    while now < limit:
        dispatch(c, now, experts_per_layer)
        now = next_completion(c)
        if now > limit:
            return
        while True:
            place = complete_one(c, now)
            if place == -2:
                break
            if place >= 0:
                landed_expert(c, place)
