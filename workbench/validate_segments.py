"""The same few passes twice, as segments on one clock: as simulated, and as one measured repeat ran.

Nothing is recorded for this: every run notes how long each part and each expert took, when it waited, and when copies
started and landed. One part begins where the one before it ended, so starts and ends follow without another clock reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sim.engines.run import Engine, Setup
from ..sim.engines.survey import survey
from .timeline import segments_of

if TYPE_CHECKING:
    from ..kernels.runtime.record import RunRecord
    from .validate_run import Prepared

Segment = dict[str, Any]
_Add = Callable[[str, str, str, int, int, int | None], None]
LANES = ("compute", "host", "link")
"""Host: deciding and asking for copies. Link: copies out of the tier, whatever it is."""


def simulated_segments(prepared: Prepared, setup: Setup) -> list[Segment]:
    """Of the passes `shown_passes` names, from the event-driven engine, with the waits that it leaves blank."""
    engine = Engine(prepared.source, setup, look=survey(prepared.source))
    found = segments_of(engine, prepared.passes, prepared.source.trace.layer_ids_L)
    for one in found:
        if one["lane"].startswith("copy"):
            one["lane"] = "link"
        else:
            one["kind"] = {"expert": "routed", "resident": "unrouted"}.get(one["kind"], one["kind"])
    found += _waits(found)
    return _from_zero(found, min((one["start_ns"] for one in found), default=0))


def _waits(segments: Iterable[Segment]) -> list[Segment]:
    """Between the moment the experts are known and the end of the last one, whatever is not computed is waited for."""

    def event_of(one: Segment) -> tuple[int, int]:
        return one["pass"], one["layer"]

    found = []
    of_events = sorted((one for one in segments if one["lane"] != "link"), key=event_of)
    for (number, layer), mine in groupby(of_events, event_of):
        free = None
        for one in sorted(mine, key=lambda one: one["start_ns"]):
            if free is not None and one["start_ns"] > free:
                found.append(
                    _segment("compute", "stall", "waiting", free, one["start_ns"], number, layer, None)
                )
            free = one["end_ns"]
    return found


def measured_segments(
    record: RunRecord, passes: Sequence[int], layer_ids: Sequence[int], experts: int
) -> list[Segment]:
    """The same of a real run. `passes` as the trace numbers them, `experts` routed experts a layer.

    A copy belongs to the pass in which it started, as in a simulated timeline.
    """
    found: list[Segment] = []
    if not passes:
        return found
    layers = len(layer_ids)
    ends = np.cumsum([len(decision.experts) for decision in record.decisions])
    for number in passes:
        for place, layer in enumerate(layer_ids):

            def add(
                lane: str, kind: str, name: str, low: int, high: int, expert: int | None = None,
                number: int = number, layer: int = layer,
            ) -> None:  # fmt: skip
                if high > low:
                    found.append(_segment(lane, kind, name, low, high, number, layer, expert))

            last = int(ends[number * layers + place])
            first = last - len(record.decisions[number * layers + place].experts)
            _event(record, number, place, range(first, last), experts, add)
    starts = record.pass_start_ns[list(passes)]
    for copy in record.copies:
        low, high = copy.started_ns - record.began_ns, copy.landed_ns - record.began_ns
        if starts[0] <= low < record.pass_end_ns[passes[-1]]:
            number = passes[int(np.searchsorted(starts, low, side="right")) - 1]
            kind, expert = ("demand", "prefetch")[copy.kind], copy.expert % experts
            layer = layer_ids[copy.expert // experts]
            found.append(_segment("link", kind, f"expert {expert}", low, high, number, layer, expert))
    return _from_zero(found, int(starts[0]))


def _event(
    record: RunRecord, number: int, place: int, members: Iterable[int], experts: int, add: _Add
) -> None:
    """One layer of one pass, part after part."""
    from ..kernels.runtime.record import AFTER, BEFORE, DECIDE, RESIDENT

    part = record.part_ns[:, number, place].tolist()
    known, done = int(record.known_ns[number, place]), int(record.end_ns[number, place])
    arrived = known - part[DECIDE]
    add("compute", "before", "attention + router", arrived - part[BEFORE], arrived, None)
    add("host", "decision", "decide", arrived, known, None)
    at = known + part[RESIDENT]
    add("compute", "unrouted", "shared", known, at, None)
    stalls = record.stall_spans_ns
    wait = int(np.searchsorted(stalls[:, 0], at))
    for member in members:
        while wait < len(stalls) and stalls[wait, 0] == at:
            at = int(stalls[wait, 1])
            add("compute", "stall", "waiting", int(stalls[wait, 0]), at, None)
            wait += 1
        expert, begin = int(record.expert_M[member]) % experts, at
        at += int(record.expert_ns_M[member])
        add("compute", "routed", f"expert {expert}", begin, at, expert)
    add("compute", "after", "combine", done - part[AFTER], done, None)


def _segment(
    lane: str, kind: str, name: str, low: int, high: int, number: int, layer: int, expert: int | None
) -> Segment:
    return {
        "lane": lane, "name": name, "kind": kind, "start_ns": int(low), "end_ns": int(high), "pass": int(number),
        "layer": int(layer), "expert": expert,
    }  # fmt: skip


def _from_zero(segments: list[Segment], begin: int) -> list[Segment]:
    for one in segments:
        one["start_ns"] -= begin
        one["end_ns"] -= begin
    return segments
