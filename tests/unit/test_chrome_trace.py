"""The Chrome trace: valid JSON, every event once, microseconds, never less than no time, no overlap in a thread."""

from __future__ import annotations

import json

import codesign
import numpy as np
import pytest
from codesign.reports import write_chrome_trace
from report_runs import ODD_NAME, made_result


@pytest.fixture(scope="module")
def replayed():
    """A timeline that an engine made: a small model of the catalog on a machine, prefetching over one link."""
    rng = np.random.default_rng(0)
    trace = codesign.synthesise(
        num_tokens=40, num_layers=16, num_experts=64, top_k=8, prefill_tokens=8, guess_recall=0.6, rng=rng
    )
    result = codesign.replay(
        trace,
        model="olmoe-1b-7b",
        hardware="rtx-4090",
        policies=("lru",),
        prefetch=("gate",),
        capacities=("25%",),
    )
    assert result.timeline["events"]
    return result.timeline


def written(events, folder):
    path = write_chrome_trace(events, folder / "trace.json")
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)  # NaN is no JSON


def complete(document):
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


@pytest.fixture(params=["replayed", "made"])
def timeline(request, replayed):
    return replayed if request.param == "replayed" else made_result(prefetchers=("none", "gate")).timeline


def test_every_event_of_the_timeline_is_there_once_with_its_time_in_microseconds(timeline, tmp_path):
    found = complete(written(timeline, tmp_path))
    expected = sorted((e["name"], e["kind"], e["start_ns"], e["end_ns"]) for e in timeline["events"])
    assert (
        sorted(
            (e["name"], e["cat"], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in found
        )
        == expected
    )
    assert max(e["ts"] for e in found) * 1000 == max(e["start_ns"] for e in timeline["events"])


def test_no_event_takes_less_than_no_time_or_begins_before_0(timeline, tmp_path):
    for event in complete(written(timeline, tmp_path)):
        assert event["dur"] >= 0
        assert event["ts"] >= 0


def test_in_a_thread_events_follow_each_other_or_nest_and_never_overlap(timeline, tmp_path):
    threads = {}
    for event in complete(written(timeline, tmp_path)):
        start = round(event["ts"] * 1000)
        threads.setdefault((event["pid"], event["tid"]), []).append(
            (start, start + round(event["dur"] * 1000))
        )
    for events in threads.values():
        assert events == sorted(events, key=lambda one: (one[0], -one[1]))
        for at, (start, end) in enumerate(events):
            assert all(later >= end or until <= end for later, until in events[at + 1 :]), (start, end)


def test_what_an_engine_did_on_a_lane_never_overlaps_so_each_lane_is_one_thread(replayed, tmp_path):
    document = written(replayed, tmp_path)
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert sorted(names) == sorted({event["lane"] for event in replayed["events"]})
    assert {"compute", "copy 0"} <= set(names)


def test_each_thread_is_named_for_the_lane_of_its_events(timeline, tmp_path):
    document = written(timeline, tmp_path)
    name = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    lanes = {}
    for event in timeline["events"]:
        lanes.setdefault((event["name"], event["kind"], event["start_ns"]), set()).add(event["lane"])
    for event in complete(document):
        assert name[event["tid"]] in lanes[event["name"], event["cat"], round(event["ts"] * 1000)]


def test_metadata_come_before_the_events_they_name(timeline, tmp_path):
    seen = set()
    for event in written(timeline, tmp_path)["traceEvents"]:
        if event["ph"] == "M":
            seen.add((event["name"], event["tid"]))
        else:
            assert ("thread_name", event["tid"]) in seen
    assert ("process_name", 0) in seen


def test_events_that_overlap_on_one_lane_go_to_a_second_thread_of_it(tmp_path):
    events = [
        {"lane": "copy 0", "name": "a", "kind": "demand", "start_ns": 0, "end_ns": 100},
        {"lane": "copy 0", "name": "b", "kind": "demand", "start_ns": 50, "end_ns": 150},
        {"lane": "copy 0", "name": "inside a", "kind": "demand", "start_ns": 10, "end_ns": 20},
    ]
    document = written(events, tmp_path)
    thread = {e["name"]: e["tid"] for e in complete(document)}
    assert thread["a"] == thread["inside a"] != thread["b"]
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"copy 0", "copy 0 (2)"}


def test_what_else_an_event_says_stands_in_its_arguments_and_what_is_unknown_does_not(tmp_path):
    event = {
        "lane": "compute",
        "name": "x",
        "kind": "expert",
        "start_ns": 1,
        "end_ns": 2,
        "pass": 3,
        "expert": None,
    }
    assert [e["args"] for e in complete(written([event], tmp_path))] == [{"pass": 3}]


def test_whole_nanoseconds_survive_microseconds_an_hour_into_a_run(tmp_path):
    start = 3_600_000_000_001
    event = {"lane": "compute", "name": "x", "kind": "expert", "start_ns": start, "end_ns": start + 1}
    (found,) = complete(written([event], tmp_path))
    assert (round(found["ts"] * 1000), round(found["dur"] * 1000)) == (start, 1)


def test_several_runs_are_several_processes_with_their_names(tmp_path):
    run = made_result().timeline
    other = run | {"policy": ODD_NAME}
    document = written([run, other], tmp_path)
    names = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert names == {1: "least-stale · none · 5%", 2: f"{ODD_NAME} · none · 5%"}
    assert len(complete(document)) == 2 * len(run["events"])


def test_an_odd_name_reads_back_whole_and_is_safe_inside_html(tmp_path):
    event = {"lane": ODD_NAME, "name": ODD_NAME, "kind": ODD_NAME, "start_ns": 0, "end_ns": 1}
    (found,) = complete(written([event], tmp_path))
    assert found["name"] == found["cat"] == ODD_NAME
    assert "<" not in (tmp_path / "trace.json").read_text()


def test_no_events_are_an_empty_trace(tmp_path):
    assert written([], tmp_path) == {"traceEvents": [], "displayTimeUnit": "ns"}
