"""What each prefetcher wants at an event, slow and obvious, from the whole past each time."""

from __future__ import annotations

from codesign.sim.blocks import BlockSource
from codesign.sim.prefetch.registry import Prefetcher


class Past:
    """A trace up to an event: what has been seen, row by row."""

    def __init__(self, source: BlockSource, number: int, layer: int) -> None:
        self.source, self.number, self.layer = source, number, layer
        self.trace, self.passes = source.trace, source.passes

    def rows(self, number: int) -> list[int]:
        return self.passes.rows[self.passes.start[number] : self.passes.start[number + 1]].tolist()

    def ids(self, row: int, layer: int) -> list[int]:
        return [int(e) for e in self.trace.experts_TLK[row, layer] if e >= 0]

    def seen(self, layer: int) -> list[int]:
        """Rows that have passed a layer before the present event."""
        before = range(self.number + (layer < self.layer))
        return [row for number in before for row in self.rows(number)]


def highest(score: dict[int, float], many: int) -> list[int]:
    return sorted((e for e in score if score[e] > 0), key=lambda e: (-score[e], e))[:many]


def wish(chosen: Prefetcher, source: BlockSource, number: int, layer: int) -> list[int]:
    """Expert ids of the target layer, in the order of the wish."""
    past, trace = Past(source, number, layer), source.trace
    target = layer + chosen.ahead
    if target >= trace.num_layers:
        return []
    here = past.rows(number)
    top = chosen.setting("top")
    many = int(top) if top != "same" else len({e for row in here for e in past.ids(row, layer)})
    score = dict.fromkeys(range(trace.num_experts), 0.0)
    if chosen.name == "hot":
        for row in past.seen(target):
            for e in past.ids(row, target):
                score[e] += 1
    elif chosen.name == "coactivation":
        for row in here:
            for cause in past.ids(row, layer):
                uses = sum(cause in past.ids(r, layer) for r in past.seen(layer))
                for e in score:
                    both = sum(
                        cause in past.ids(r, layer) and e in past.ids(r, target) for r in past.seen(target)
                    )
                    score[e] += both / max(1, uses)
    elif chosen.name == "activation":
        _like_sequences(past, target, score)
    elif chosen.name == "map":
        _like_passes(past, target, score)
    return highest(score, many)


def _like_sequences(past: Past, target: int, score: dict[int, float]) -> None:
    """With one sequence at a time: all earlier sequences have ended, in their order."""
    passes, trace = past.passes, past.trace
    present = int(passes.sequence_of_row[passes.start[past.number]])
    used: dict[int, dict[tuple[int, int], int]] = {}
    for number in range(past.number + 1):
        sequence = int(passes.sequence_of_row[passes.start[number]])
        for row in past.rows(number):
            for layer in range(trace.num_layers if number < past.number else past.layer + 1):
                for e in past.ids(row, layer):
                    counts = used.setdefault(sequence, {})
                    counts[layer, e] = counts.get((layer, e), 0) + 1
    mine = used[present]
    best, highest_cosine = None, 0.0
    for sequence in sorted(used):
        if sequence != present:
            theirs = used[sequence]
            norm = sum(count * count for count in theirs.values()) ** 0.5
            cosine = sum(count * theirs.get(key, 0) for key, count in mine.items()) / norm
            if cosine > highest_cosine:
                best, highest_cosine = sequence, cosine
    if best is not None:
        total = sum(count for (layer, _), count in used[best].items() if layer == target)
        for e in score:
            score[e] = used[best].get((target, e), 0) / max(total, 1)


def _like_passes(past: Past, target: int, score: dict[int, float]) -> None:
    """The last 256 paths of earlier passes; the likest so far, of equals the latest, for each running sequence."""

    def ends(number: int) -> list[int]:
        low, high = past.passes.start[number], past.passes.start[number + 1]
        owners = past.passes.sequence_of_row[low:high].tolist()
        rows = past.rows(number)
        return [row for i, row in enumerate(rows) if i + 1 == len(rows) or owners[i + 1] != owners[i]]

    def shared(row: int, other: int) -> int:
        return sum(len({*past.ids(row, layer)} & {*past.ids(other, layer)}) for layer in range(past.layer + 1))

    maps = [row for number in range(past.number) for row in ends(number)][-256:]
    for row in ends(past.number):
        likest = max(reversed(maps), key=lambda other: shared(row, other), default=None)
        if likest is not None and shared(row, likest) > 0:
            for e in past.ids(likest, target):
                score[e] += 1
