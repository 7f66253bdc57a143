"""What the machine does during a few passes: lanes for compute, each copy engine, storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .embed import literal, plain
from .scales import Unit, seconds_unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

Event = Mapping[str, Any]
MOST_EVENTS = 1500
"""More bars than this make a page slow and a figure unreadable; the Chrome trace has them all."""

# What an event's kind means, in the order of the legend. Copies are warm colours, computing cool ones.
KINDS = {
    "before": ("before the experts (attention, router)", "#183090"),
    "resident": ("expert that was there", "#187890"),
    "expert": ("expert that arrived", "#79b8c8"),
    "unrouted": ("work that needs no routed expert", "#187890"),
    "routed": ("routed expert", "#79b8c8"),
    "after": ("after the experts", "#8088c8"),
    "stall": ("waiting for a copy", "#d0d0d0"),
    "decision": ("policy decides", "#e030c8"),
    "demand": ("copy on demand", "#e65c00"),
    "prefetch": ("copy ahead", "#00a060"),
}
_OTHER_COLOUR = "#604800"


class TimelineRun(NamedTuple):
    """One recorded run: who ran, and its events (times in integer nanoseconds)."""

    policy: str | None
    prefetch: str | None
    capacity_label: str | None
    events: tuple[Event, ...]

    @property
    def title(self) -> str:
        known = [name for name in (self.policy, self.prefetch, self.capacity_label) if name is not None]
        return " · ".join(known) or "replay"


class TimelineInfo(NamedTuple):
    title: str
    lanes: tuple[str, ...]
    """Top to bottom: compute first, then copy engines, then storage."""
    events: tuple[Event, ...]
    passes: tuple[int, ...]
    """Which passes are shown, ascending; empty where the events do not say."""
    num_passes: int
    is_cut: bool
    """Whether the passes shown had more events than can be drawn, so that the last ones are missing."""
    start_ns: int
    end_ns: int


def timeline_runs(timeline: Any) -> tuple[TimelineRun, ...]:
    """Recorded runs from any of the forms they come in: a run, a list of runs, or a bare list of events."""
    if not timeline:
        return ()
    if isinstance(timeline, Mapping):
        return (_run(timeline),)
    if all("events" in entry for entry in timeline):
        return tuple(_run(entry) for entry in timeline)
    return (_run({"events": timeline}),)


def _run(entry: Mapping[str, Any]) -> TimelineRun:
    names = (entry.get(name) for name in ("policy", "prefetch", "capacity_label"))
    policy, prefetch, capacity_label = (None if name is None else str(name) for name in names)
    return TimelineRun(policy, prefetch, capacity_label, tuple(plain(event) for event in entry["events"]))


def timeline_info(run: TimelineRun, passes: int = 3, most_events: int = MOST_EVENTS) -> TimelineInfo | None:
    """The last `passes` recorded passes (the cache has filled by then), fewer if they have too many events.

    None where nothing was recorded.
    """
    if not run.events:
        return None
    numbers = sorted({int(event["pass"]) for event in run.events if event.get("pass") is not None})
    shown = numbers[-passes:]
    events = _in_passes(run.events, shown)
    while len(shown) > 1 and len(events) > most_events:
        shown = shown[1:]
        events = _in_passes(run.events, shown)
    is_cut = len(events) > most_events
    events = sorted(events, key=lambda event: (event["start_ns"], event["end_ns"]))[:most_events]
    return TimelineInfo(
        run.title,
        tuple(sorted({str(event["lane"]) for event in events}, key=lane_order)),
        tuple(events),
        tuple(shown),
        len(numbers),
        is_cut,
        min(int(event["start_ns"]) for event in events),
        max(int(event["end_ns"]) for event in events),
    )


def _in_passes(events: Sequence[Event], passes: Sequence[int]) -> list[Event]:
    wanted = set(passes)
    return [event for event in events if not wanted or event.get("pass") in wanted]


def lane_order(lane: str) -> tuple[int, str]:
    """Sorts lanes: compute, then what decides, then copies, then storage, then what we do not know."""
    for place, start in enumerate(("compute", "decision", "copy", "storage")):
        if lane.startswith(start):
            return place, lane
    return 9, lane


def draw_timeline(info: TimelineInfo) -> go.Figure:
    """Bars from start to end in each lane; zero is the start of the first bar."""
    import plotly.graph_objects as go

    from .figure import base_layout, legend_above

    unit = seconds_unit([(info.end_ns - info.start_ns) * 1e-9])
    figure = go.Figure(layout=base_layout(height=150 + 64 * len(info.lanes)))
    kinds = dict.fromkeys([*KINDS, *(str(event["kind"]) for event in info.events)])
    for kind in kinds:
        found = [event for event in info.events if event["kind"] == kind]
        if not found:
            continue
        title, colour = KINDS.get(kind, (kind, _OTHER_COLOUR))
        figure.add_bar(
            orientation="h",
            name=literal(title, 40),
            y=[info.lanes.index(event["lane"]) for event in found],
            base=[(event["start_ns"] - info.start_ns) * 1e-9 * unit.factor for event in found],
            x=[(event["end_ns"] - event["start_ns"]) * 1e-9 * unit.factor for event in found],
            width=0.5 if kind == "stall" else 0.8,
            marker={"color": colour, "line": {"color": "#ffffff", "width": 0.4}},
            hovertext=[_hover(event, info, unit) for event in found],
            hoverinfo="text",
        )
    figure.update_layout(barmode="overlay", showlegend=True, legend=legend_above(), margin_t=60)
    figure.update_yaxes(
        tickvals=list(range(len(info.lanes))),
        ticktext=[literal(lane, 14) for lane in info.lanes],
        range=[len(info.lanes) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
        ticks="",
    )
    figure.update_xaxes(title=f"time since the start ({unit.name})", rangemode="tozero")
    return figure


def _hover(event: Event, info: TimelineInfo, unit: Unit) -> str:
    start = (event["start_ns"] - info.start_ns) * 1e-9
    length = (event["end_ns"] - event["start_ns"]) * 1e-9
    own = seconds_unit([length])
    where = [f"{name} {event[name]}" for name in ("pass", "layer", "expert") if event.get(name) is not None]
    return (
        f"{literal(str(event['name']))}<br>{literal(', '.join(where))}<br>"
        f"starts at {unit.show(start)} {unit.name}, takes {own.show(length)} {own.name}"
    )
