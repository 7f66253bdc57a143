"""The timeline: which passes are shown, in which lanes, and that the bars are the recorded events."""

from __future__ import annotations

import pytest
from codesign.reports.timeline import draw_timeline, timeline_info, timeline_runs
from report_runs import ODD_NAME, made_result


@pytest.fixture
def recorded():
    return made_result(prefetchers=("none", "gate")).timeline


def event(lane="compute", start=0, end=1000, **more):
    return {"lane": lane, "name": "x", "kind": "expert", "start_ns": start, "end_ns": end, "pass": 0} | more


def test_a_run_a_list_of_runs_and_a_bare_list_of_events_are_the_same_runs(recorded):
    (one,) = timeline_runs(recorded)
    assert (one.policy, one.prefetch, one.capacity_label) == ("least-stale", "gate", "5%")
    assert one.title == "least-stale · gate · 5%"
    assert timeline_runs([recorded, recorded]) == (one, one)
    (bare,) = timeline_runs(recorded["events"])
    assert bare.events == one.events
    assert bare.title == "replay"
    assert timeline_runs(None) == timeline_runs([]) == ()


def test_the_last_passes_are_shown_with_all_their_events(recorded):
    (run,) = timeline_runs(recorded)
    info = timeline_info(run, passes=2)
    assert info.passes == (2, 3)
    assert info.num_passes == 4
    assert not info.is_cut
    expected = [one for one in recorded["events"] if one["pass"] in (2, 3)]
    assert sorted(map(repr, info.events)) == sorted(map(repr, expected))
    assert info.start_ns == min(one["start_ns"] for one in expected)
    assert info.end_ns == max(one["end_ns"] for one in expected)


def test_fewer_passes_are_shown_where_they_have_too_many_events_and_a_cut_is_said():
    events = [event(start=at, end=at + 1, **{"pass": at // 10}) for at in range(40)]
    (run,) = timeline_runs(events)
    assert timeline_info(run, passes=3, most_events=25).passes == (2, 3)
    short = timeline_info(run, passes=3, most_events=4)
    assert short.is_cut
    assert [one["start_ns"] for one in short.events] == [30, 31, 32, 33]
    assert not timeline_info(run, passes=3, most_events=30).is_cut


def test_lanes_stand_in_the_order_compute_copies_storage():
    lanes = ["storage", "copy 1", "elsewhere", "compute", "copy 0"]
    (run,) = timeline_runs([event(lane) for lane in lanes])
    assert timeline_info(run).lanes == ("compute", "copy 0", "copy 1", "storage", "elsewhere")


def test_nothing_recorded_is_no_timeline():
    (run,) = timeline_runs({"policy": "lru", "events": []})
    assert timeline_info(run) is None


def test_events_that_do_not_say_their_pass_are_all_shown():
    (run,) = timeline_runs([{**event(start=at), "pass": None} for at in (5, 3)])
    info = timeline_info(run)
    assert info.passes == ()
    assert [one["start_ns"] for one in info.events] == [3, 5]


def test_every_bar_begins_and_ends_where_its_event_does(recorded):
    (run,) = timeline_runs(recorded)
    info = timeline_info(run)
    bars = [
        (info.lanes[lane], base, base + length)
        for trace in draw_timeline(info).data
        for lane, base, length in zip(trace.y, trace.base, trace.x, strict=True)
    ]
    assert len(bars) == len(info.events)
    expected = sorted((one["lane"], one["start_ns"], one["end_ns"]) for one in info.events)
    to_ns = (info.end_ns - info.start_ns) / max(end for *_, end in bars)
    for (lane, start, end), (drawn, base, tip) in zip(expected, sorted(bars), strict=True):
        assert lane == drawn
        assert base * to_ns + info.start_ns == pytest.approx(start, abs=1)
        assert tip * to_ns + info.start_ns == pytest.approx(end, abs=1)


def test_odd_names_of_lanes_and_events_are_escaped_where_they_are_drawn():
    (run,) = timeline_runs([event(ODD_NAME, name=ODD_NAME, kind=ODD_NAME)])
    figure = draw_timeline(timeline_info(run))
    for text in (*figure.layout.yaxis.ticktext, *figure.data[0].hovertext, figure.data[0].name):
        assert "<b>" not in text.replace("<br>", "")
        assert "&lt;" in text
