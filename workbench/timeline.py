"""A few steps of a replay as segments: what computed, what was copied, when. From the event-driven engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sim.engines.run import Engine
from ..sim.engines.survey import Survey
from ..sim.passes import Passes

_PASSES_SHOWN = 3
_MOST_ACCESSES = 60_000  # the event-driven engine does some 100,000 a second
_MOST_SEGMENTS = 4_000
_KIND = {"attention + router": "before", "shared": "resident", "combine": "after", "decide": "decision"}


def segments_of(engine: Engine, passes: Passes, layer_ids_L: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Segments of the first three passes that decode one token (or, without any, of the first three passes).

    Each is {lane, name, kind, start_ns, end_ns, pass, layer, expert}; `layer` is the model's own number. The
    pass index counts from 0. Only what fits a page is kept: whole passes, as many as stay below 4,000 segments.
    """
    assert engine.look is not None
    shown = shown_passes(engine.look, passes)
    first = shown[0]
    experts = engine.source.trace.num_experts
    found: list[dict[str, Any]] = []

    def on_segment(
        lane: str,
        name: str,
        start: int,
        duration: int,
        number: int,
        layer: int,
        expert: int | None,
        kind: str,
    ) -> None:
        if number < first:
            return
        found.append(
            {
                "lane": lane,
                "name": name if expert is None else f"expert {expert % experts}",
                "kind": kind or _KIND.get(name, name),
                "start_ns": int(start),
                "end_ns": int(start + duration),
                "pass": int(number),
                "layer": int(layer_ids_L[layer]),
                "expert": None if expert is None else int(expert % experts),
            }
        )

    engine.run("simpy", on_segment=on_segment, stop_after=shown[-1] + 1)
    while len(found) > _MOST_SEGMENTS:
        last = found[-1]["pass"]
        if last == first:
            return found[:_MOST_SEGMENTS]
        found = [segment for segment in found if segment["pass"] < last]
    return found


def shown_passes(look: Survey, passes: Passes) -> range:
    """Three passes from the first one of decoding that the event-driven engine reaches quickly (fewer at a trace's end)."""
    until = np.cumsum(look.union_PL.sum(axis=1, dtype=np.int64))
    single = passes.tokens() == passes.tokens().min()
    early = np.flatnonzero(single & (until <= _MOST_ACCESSES))
    first = int(early[0]) if len(early) else 0
    return range(first, min(first + _PASSES_SHOWN, passes.count))
