"""A timeline as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Format: "Trace Event Format", the JSON object form with complete ("X") and metadata ("M") events; times in
microseconds, given here with three decimals, so whole nanoseconds survive. A run is a process, a lane a
thread. Viewers expect the events of one thread to nest; where two merely overlap, the later one goes to a
second thread of the same lane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files import written_whole
from .embed import escaped_for_script
from .timeline import Event, TimelineRun, lane_order, timeline_runs

_DESCRIBED = ("lane", "name", "kind", "start_ns", "end_ns")


def write_chrome_trace(events: Any, path: str | Path) -> Path:
    """Write `events` whole to `path` and return it.

    `events`: a list of timeline events, a timeline with "policy", "prefetch", "capacity_label" and "events",
    or a list of such. Times in ns. Raises `RunError` where the file cannot be written.
    """
    document = {"traceEvents": list(chrome_events(timeline_runs(events))), "displayTimeUnit": "ns"}
    text = escaped_for_script(json.dumps(document, allow_nan=False))
    with written_whole(path) as part:
        part.write_text(text + "\n", encoding="utf-8")
    return Path(path)


def chrome_events(runs: Sequence[TimelineRun]) -> Iterator[dict[str, Any]]:
    """Names of processes and threads first, then each thread's events by start."""
    for pid, run in enumerate(runs, start=1):
        yield _metadata("process_name", pid, 0, {"name": run.title})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        tid = 0
        for lane in sorted({str(event["lane"]) for event in run.events}, key=lane_order):
            events = [event for event in run.events if event["lane"] == lane]
            for number, thread in enumerate(_nested(events), start=1):
                tid += 1
                yield _metadata(
                    "thread_name", pid, tid, {"name": lane if number == 1 else f"{lane} ({number})"}
                )
                yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
                yield from (_complete(event, pid, tid) for event in thread)


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": args}


def _complete(event: Event, pid: int, tid: int) -> dict[str, Any]:
    start, end = int(event["start_ns"]), int(event["end_ns"])
    return {
        "name": str(event["name"]),
        "cat": str(event["kind"]),
        "ph": "X",
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "pid": pid,
        "tid": tid,
        "args": {key: value for key, value in event.items() if key not in _DESCRIBED and value is not None},
    }


def _nested(events: Sequence[Event]) -> list[list[Event]]:
    """`events` by first fit over threads, so that in each any two either nest or do not touch."""
    threads: list[tuple[list[Event], list[int]]] = []  # events, and the ends of those still open
    for event in sorted(events, key=lambda one: (one["start_ns"], -one["end_ns"])):
        fitting = next((thread for thread in threads if _fits(event, thread[1])), None)
        if fitting is None:
            fitting = ([], [])
            threads.append(fitting)
        fitting[0].append(event)
        fitting[1].append(event["end_ns"])
    return [thread for thread, _ in threads]


def _fits(event: Event, open_ends: list[int]) -> bool:
    """Whether `event` lies inside what is still open at its start; closes what has ended by then."""
    while open_ends and open_ends[-1] <= event["start_ns"]:
        open_ends.pop()
    return not open_ends or event["end_ns"] <= open_ends[-1]
