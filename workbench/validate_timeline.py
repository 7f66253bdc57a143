"""The same few passes twice, as segments on one clock: as simulated, and as the last measured repeat ran.

What the runtime knows of an event is how long its parts took and when it waited; so both sides show an event's experts as
one part with the waits cut out, however many there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..sim.engines.run import Engine, Setup
from ..sim.engines.survey import survey
from .timeline import segments_of

if TYPE_CHECKING:
    from ..kernels.runtime.record import RunRecord
    from .validate_run import Prepared

Segment = dict[str, Any]
_COPIES = ("demand", "prefetch")  # by the code that the runtime's copies carry


def simulated_segments(prepared: Prepared, setup: Setup) -> list[Segment]:
    """Of the first passes that decode, from the event-driven engine; zero is the start of the first of them."""
    engine = Engine(prepared.source, setup, look=survey(prepared.source))
    found = segments_of(engine, prepared.passes, prepared.source.trace.layer_ids_L)
    for one in found:
        if one["kind"] in ("resident", "expert"):
            one["kind"], one["name"] = "experts", "experts"
    return _from_zero(found, min((one["start_ns"] for one in found), default=0))


def measured_segments(record: RunRecord, passes: Sequence[int], layer_ids: Sequence[int], experts: int) -> list[Segment]:
    """The same passes of a real run. `passes` as they are numbered in the trace, `experts` routed experts a layer."""
    from ..kernels.runtime.record import AFTER, BEFORE, DECIDE

    found: list[Segment] = []
    if not passes:
        return found
    begin, end = int(record.pass_start_ns[passes[0]]), int(record.pass_end_ns[passes[-1]])

    def add(lane: str, kind: str, name: str, low: int, high: int, number: int, layer: int) -> None:
        if high > low:
            found.append({"lane": lane, "name": name, "kind": kind, "start_ns": low, "end_ns": high, "pass": number,
                          "layer": layer, "expert": None})  # fmt: skip

    for number in passes:
        at = int(record.pass_start_ns[number])
        for place, layer in enumerate(layer_ids):
            part = record.part_ns[:, number, place]
            known, done = int(record.known_ns[number, place]), int(record.end_ns[number, place])
            decided = max(at, known - int(part[DECIDE]))
            add("compute", "before", "attention + router", max(at, decided - int(part[BEFORE])), decided, number, layer)
            add("compute", "decision", "decide", decided, known, number, layer)
            combined = max(known, done - int(part[AFTER]))
            free = known
            for low, high in record.stall_spans_ns.tolist():
                if high <= known or low >= combined:
                    continue
                add("compute", "experts", "experts", free, max(low, known), number, layer)
                add("compute", "stall", "waiting", max(low, known), min(high, combined), number, layer)
                free = min(high, combined)
            add("compute", "experts", "experts", free, combined, number, layer)
            add("compute", "after", "combine", combined, done, number, layer)
            at = done
    for copy in record.copies:
        low, high = copy.started_ns - record.began_ns, copy.landed_ns - record.began_ns
        if high <= begin or low >= end:
            continue
        number = max(one for one in passes if one == passes[0] or record.pass_start_ns[one] <= low)
        name, layer = f"expert {copy.expert % experts}", layer_ids[copy.expert // experts]
        add("copy", _COPIES[copy.kind], name, max(low, begin), min(high, end), number, layer)
    return _from_zero(found, begin)


def _from_zero(segments: list[Segment], begin: int) -> list[Segment]:
    for one in segments:
        one["start_ns"] -= begin
        one["end_ns"] -= begin
    return segments
