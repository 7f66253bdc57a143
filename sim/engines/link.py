"""The copy path of the fast engine: queues and servers between storage, host and device, in compiled code.

Every device place (slot, staging or workspace) has at most one copy *started* and one *pending*. Copies start in
order: demand before prefetch, then who joined the queue first. A started copy is never interrupted. A pending
copy whose place is given to another expert is withdrawn: nobody could read it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import called, inlined

DEMAND, PREFETCH = 0, 1
FAR = 2**62  # later than any time
_NOT_STARTED, _ON_STORAGE, _BETWEEN, _ON_LINK = range(4)
# Rows of CopyPath.place; a layer is kept with each expert, because its copies take the layer's time
(
    PENDING, PENDING_LAYER, PENDING_CLASS, BLOCKED, STARTED, STARTED_LAYER, STARTED_CLASS, STAGE, WAITING_MEMBER,
    AFTER, BEFORE, SECOND_AFTER, SECOND_BEFORE,
) = range(13)  # fmt: skip
FIRST, SECOND = (
    AFTER,
    SECOND_AFTER,
)  # queues, named by their row: before the first hop; between storage and host link
# Rows of CopyPath.server
UNTIL, SERVES = range(2)
# Rows of CopyPath.hop
LINK_NS, STORAGE_NS, BYTES = range(3)
# Columns of CopyPath.total
LINK_BUSY, STORAGE_BUSY, WITHDRAWN, WITHDRAWN_BYTES, COPIES, OPEN = range(6)


class CopyPath(NamedTuple):
    """J places, E copy engines, L layers."""

    place: NDArray[np.int32]
    """[13, J + 2] pending expert (−1 none), its layer and class, 1 where it is behind a started copy to the same place;
    the same of the started copy, its stage; the member of the present event that waits for a landing here (−1 none);
    neighbours in the two queues, each a ring per class headed by column J + class."""
    server: NDArray[np.int64]
    """[2, E + 1] when each is done (FAR: idle) and the place it serves; the last one is storage."""
    hop: NDArray[np.int64]
    """[3, 2 L] one expert of a layer over the host link, from storage (0: experts live on the host), its bytes; then the
    same of its lower-precision copy, as if it were the expert of a layer L higher."""
    total: NDArray[np.int64]
    """[6] nanoseconds that link and storage were busy, copies withdrawn and their bytes, copies started; and how many
    are asked for and neither landed nor withdrawn."""


def new_path(
    places: int,
    engines: int,
    link_ns: NDArray[np.int64],
    storage_ns: NDArray[np.int64] | None,
    sizes: NDArray[np.int64],
    lower_share: float = 1.0,
) -> CopyPath:
    """An idle copy path. Lower-precision copies take `lower_share` of time and bytes, rounded up."""
    place = np.zeros((13, places + 2), np.int32, "F")  # a place's numbers lie side by side
    place[[PENDING, STARTED, WAITING_MEMBER]] = -1
    place[AFTER:] = np.arange(places + 2)
    server = np.full((2, engines + 1), FAR, np.int64)
    server[SERVES] = -1
    hop = np.stack([link_ns, np.zeros_like(link_ns) if storage_ns is None else storage_ns, sizes]).astype(
        np.int64
    )
    hop = np.concatenate([hop, lower_copy(hop, lower_share)], axis=1)
    return CopyPath(place, server, hop, np.zeros(6, np.int64))


def lower_copy(full: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Bytes or nanoseconds of lower-precision copies."""
    return np.ceil(full * share).astype(np.int64)


@inlined
def _join(c: Any, queue: int, place: int, kind: int) -> None:
    head = c.place.shape[1] - 2 + kind
    last = c.place[queue + 1, head]
    c.place[queue, last] = place
    c.place[queue + 1, place] = last
    c.place[queue, place] = head
    c.place[queue + 1, head] = place


@inlined
def _leave(c: Any, queue: int, place: int) -> None:
    after, before = c.place[queue, place], c.place[queue + 1, place]
    c.place[queue, before] = after
    c.place[queue + 1, after] = before


@inlined
def is_under_way(c: Any, place: int, x: int) -> bool:
    """Whether x was to come to this place and has not landed."""
    return c.place[PENDING, place] == x or c.place[STARTED, place] == x


@inlined
def withdraw(c: Any, place: int) -> None:
    """Forget the copy that waits for this place, if one does."""
    if c.place[PENDING, place] >= 0:
        if not c.place[BLOCKED, place]:
            _leave(c, FIRST, place)
        c.place[PENDING, place] = -1
        c.place[BLOCKED, place] = 0
        c.total[OPEN] -= 1
        c.total[WITHDRAWN] += 1
        c.total[WITHDRAWN_BYTES] += c.hop[BYTES, c.place[PENDING_LAYER, place]]


@inlined
def promote(c: Any, place: int) -> None:
    """Whatever is on its way to this place is needed now: it joins the demand copies."""
    if c.place[PENDING, place] >= 0 and c.place[PENDING_CLASS, place] == PREFETCH:
        c.place[PENDING_CLASS, place] = DEMAND
        if not c.place[BLOCKED, place]:
            _leave(c, FIRST, place)
            _join(c, FIRST, place, DEMAND)
    if c.place[STARTED, place] >= 0 and c.place[STARTED_CLASS, place] == PREFETCH:
        c.place[STARTED_CLASS, place] = DEMAND
        if c.place[STAGE, place] == _BETWEEN:
            _leave(c, SECOND, place)
            _join(c, SECOND, place, DEMAND)


@inlined
def request(c: Any, place: int, x: int, layer: int, kind: int) -> None:
    """Ask for a copy of x to a place; a copy that still waits for that place is withdrawn."""
    withdraw(c, place)
    c.total[OPEN] += 1
    c.place[PENDING, place] = x
    c.place[PENDING_LAYER, place] = layer
    c.place[PENDING_CLASS, place] = kind
    if c.place[STARTED, place] >= 0:
        c.place[BLOCKED, place] = 1
        if kind == DEMAND:
            promote(c, place)
    else:
        _join(c, FIRST, place, kind)


@inlined
def _take(c: Any, queue: int) -> int:
    """The place whose copy is next in a queue, −1 when it is empty."""
    places = c.place.shape[1] - 2
    place = c.place[queue, places + DEMAND]
    if place >= places:
        place = c.place[queue, places + PREFETCH]
        if place >= places:
            return -1
    _leave(c, queue, place)
    return place


@inlined
def _start(c: Any, place: int) -> None:
    c.place[STARTED, place] = c.place[PENDING, place]
    c.place[STARTED_LAYER, place] = c.place[PENDING_LAYER, place]
    c.place[STARTED_CLASS, place] = c.place[PENDING_CLASS, place]
    c.place[PENDING, place] = -1
    c.total[COPIES] += 1


@inlined
def dispatch(c: Any, now: int) -> None:
    """Let idle servers take their next copies; storage first, then the copy engines in index order."""
    storage = c.server.shape[1] - 1
    has_storage = c.hop[STORAGE_NS, 0] > 0
    if has_storage and c.server[SERVES, storage] < 0:
        place = _take(c, FIRST)
        if place >= 0:
            _start(c, place)
            c.place[STAGE, place] = _ON_STORAGE
            duration = c.hop[STORAGE_NS, c.place[STARTED_LAYER, place]]
            c.server[SERVES, storage] = place
            c.server[UNTIL, storage] = now + duration
            c.total[STORAGE_BUSY] += duration
    for engine in range(storage):
        if c.server[SERVES, engine] >= 0:
            continue
        place = _take(c, SECOND if has_storage else FIRST)
        if place < 0:
            return
        if not has_storage:
            _start(c, place)
        c.place[STAGE, place] = _ON_LINK
        duration = c.hop[LINK_NS, c.place[STARTED_LAYER, place]]
        c.server[SERVES, engine] = place
        c.server[UNTIL, engine] = now + duration
        c.total[LINK_BUSY] += duration


@inlined
def next_completion(c: Any) -> int:
    soonest = c.server[UNTIL, 0]
    for server in range(1, c.server.shape[1]):
        soonest = min(soonest, c.server[UNTIL, server])
    return soonest


@inlined
def land(c: Any, engine: int) -> int:
    """A copy engine is done: free it and its place's record; return the place. STARTED still says who landed."""
    place = c.server[SERVES, engine]
    c.total[OPEN] -= 1
    c.server[SERVES, engine] = -1
    c.server[UNTIL, engine] = FAR
    c.place[STAGE, place] = _NOT_STARTED
    if c.place[BLOCKED, place]:
        c.place[BLOCKED, place] = 0
        _join(c, FIRST, place, c.place[PENDING_CLASS, place])
    return place


@inlined
def finish_storage(c: Any, now: int) -> None:
    """If storage is done now, what it read waits for the host link."""
    storage = c.server.shape[1] - 1
    if c.server[UNTIL, storage] == now:
        place = c.server[SERVES, storage]
        c.server[SERVES, storage] = -1
        c.server[UNTIL, storage] = FAR
        c.place[STAGE, place] = _BETWEEN
        _join(c, SECOND, place, c.place[STARTED_CLASS, place])


@inlined
def advance(c: Any, limit: int, since: int) -> None:
    """Run the copy path alone from `since` up to `limit`.

    Completions at `limit` happen, starts at `limit` do not: whoever decides at `limit` comes first.
    """
    if c.total[OPEN] > 0:
        _advance(c, limit, since)


@called
def _advance(c: Any, limit: int, since: int) -> None:
    now = since
    while now < limit:
        dispatch(c, now)
        now = next_completion(c)
        if now > limit:
            return
        for engine in range(c.server.shape[1] - 1):
            if c.server[UNTIL, engine] == now:
                c.place[STARTED, land(c, engine)] = -1
        finish_storage(c, now)
