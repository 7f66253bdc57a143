"""Stack distances in compiled loops: for each access the smallest capacity at which it is a hit. `sim/curves.py` uses them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bits import count_bits
from ..compiled import compiled, inlined

WORD = 64
_WORDS = 32  # of a group: 2048 moments
GROUP = WORD * _WORDS


@inlined
def _set(moment: int, bits: Any, of_word: Any, of_group: Any, on: bool) -> None:
    word = moment >> 6
    mask = np.uint64(1) << np.uint64(moment & 63)
    if on:
        bits[word] |= mask
        of_word[word] += 1
        of_group[word >> 5] += 1
    else:
        bits[word] &= ~mask
        of_word[word] -= 1
        of_group[word >> 5] -= 1


@inlined
def _since(moment: int, bits: Any, of_word: Any, of_group: Any, present_group: int) -> int:
    """Marks at `moment` and later: a word, the rest of its group, and the groups after it."""
    word = moment >> 6
    group = word >> 5
    found = count_bits(bits[word] >> np.uint64(moment & 63))
    within = np.int32(0)
    first = group * _WORDS
    own = np.int32(word - first)
    for other in range(_WORDS):  # a fixed length: the compiler makes it wide
        within += of_word[first + other] * np.int32(np.int32(other) > own)
    for later in range(group + 1, present_group + 1):
        within += of_group[later]
    total: int = found + np.int64(within)
    return total


@compiled
def _renumber(bits: Any, of_word: Any, of_group: Any, last: Any, who: Any) -> int:
    """Pack the marks to the lowest moments, in their order; return how many there are."""
    now = 0
    for moment in range(who.shape[0]):
        if bits[moment >> 6] >> np.uint64(moment & 63) & np.uint64(1):
            x = who[moment]
            last[x] = now
            who[now] = x
            now += 1
    bits[:] = 0
    of_word[:] = 0
    of_group[:] = 0
    for moment in range(now):
        _set(moment, bits, of_word, of_group, True)
    return now


@compiled
def lru_distances(
    ids: Any, last: Any, who: Any, bits: Any, of_word: Any, of_group: Any, histogram: Any
) -> None:
    """How often each stack distance occurs. `last` is each id's moment (−1 never), `who` the id of each moment.

    Each id has a mark at the moment of its last use, so the marks from there on are the distinct ids used since.
    """
    now = 0
    for j in range(ids.shape[0]):
        x = ids[j]
        moment = last[x]
        if moment >= 0:
            if moment == now - 1:  # the youngest: distance 1, and nothing moves
                histogram[1] += 1
                continue
            histogram[_since(moment, bits, of_word, of_group, (now - 1) >> 11)] += 1
            _set(moment, bits, of_word, of_group, False)
        if now == who.shape[0]:
            now = _renumber(bits, of_word, of_group, last, who)
        last[x] = now
        who[now] = x
        _set(now, bits, of_word, of_group, True)
        now += 1


@compiled
def belady_distances(ids: Any, next_uses: Any, place: Any, stack: Any, key: Any, histogram: Any) -> None:
    """The same for OPT: whoever is needed sooner stays higher in the stack.

    The accessed id goes to the top. The one that stood there is carried down; at each place the one of the two that is
    needed later is carried on, to where the accessed id was (or to the end, if it is new).
    """
    depth = 0
    for j in range(ids.shape[0]):
        x = ids[j]
        found = place[x]
        if found >= 0:
            histogram[found + 1] += 1
        end = found if found >= 0 else depth
        if end > 0:
            carried, needed = stack[0], key[0]
            for at in range(1, end):
                if key[at] > needed:
                    carried, stack[at] = stack[at], carried
                    needed, key[at] = key[at], needed
                    place[stack[at]] = at
            stack[end], key[end] = carried, needed
            place[carried] = end
        if found < 0:
            depth += 1
        stack[0], key[0] = x, next_uses[j]
        place[x] = 0
