"""What a page gathers from a result, and that foreign names in it are text wherever they stand."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from codesign.errors import UsageError
from codesign.reports.embed import embedded_json, literal, plain
from codesign.reports.page import page_figures, page_html, page_info
from codesign.reports.palette import looks
from codesign.reports.rows import in_order, plain_rows
from report_runs import BOUNDS, ODD_NAME, made_result


def test_a_page_gathers_every_row_every_warning_and_the_sentence_of_its_result():
    result = made_result(prefetchers=("none", "gate"))
    info = page_info(result)
    assert len(info.rows) == len(result.rows)
    assert info.warnings == tuple(result.run["warnings"])
    assert info.sentence == result.run["sentence"]
    assert info.title == "Replay of olmoe.safetensors"
    assert info.bounds == BOUNDS
    assert set(info.curves) == {"hit_rate", "tpot_s", "ttft_s", "bytes_moved"}
    assert info.has_times
    assert info.reporting == plain(result.reporting)


def test_a_page_without_times_and_timeline_has_neither_their_curves_nor_their_figures():
    info = page_info(made_result(times=False, timeline=False))
    assert not info.has_times
    assert info.costs is None
    assert info.timelines == ()
    sections = page_figures(info)
    assert sections["tpot_s"] == sections["ttft_s"] == sections["timeline"] == ()
    assert sections["hit_rate"]
    assert sections["misses"][0].choices == ("5%", "10%", "25%", "50%")


def test_a_result_without_rows_is_refused():
    result = made_result()
    result.rows = pd.DataFrame()
    with pytest.raises(UsageError, match="no rows"):
        page_info(result)


def test_no_two_policies_look_alike():
    names = [f"policy {number}" for number in range(56)]
    found = looks(names, BOUNDS)
    assert set(found) == {*names, *BOUNDS}
    assert len(set(found.values())) == 60
    assert all(found[name].mark is None for name in BOUNDS)


def test_rows_are_bounds_first_and_then_the_fastest_at_each_capacity():
    rows = in_order(plain_rows(made_result(timeline=False).rows)[::-1])
    for label in ("5%", "50%"):
        own = [row for row in rows if row["capacity_label"] == label]
        assert [row["is_bound"] for row in own] == [True] * 4 + [False] * 3
        assert [row["tpot_s"] for row in own[4:]] == sorted(row["tpot_s"] for row in own[4:])


def test_unknown_cells_are_left_out_of_plain_rows_and_0_and_no_are_kept():
    frame = pd.DataFrame(
        {
            "a": [0.0, math.nan],
            "b": [None, "x"],
            "c": [pd.NA, False],
            "d": [math.inf, 1.0],
            "e": np.array([1, 2]),
        }
    )
    assert plain_rows(frame) == [{"a": 0.0, "e": 1}, {"b": "x", "c": False, "d": 1.0, "e": 2}]


NASTY = [
    ODD_NAME,
    "<!--<script>",
    "</ScRiPt >",
    "&lt;b&gt;",
    "\u2028\u2029",
    "'\"`${}",
    "\\u003c",
]


@pytest.mark.parametrize("name", NASTY)
def test_embedded_json_reads_back_as_it_was_and_holds_nothing_that_html_acts_upon(name):
    text = embedded_json({name: [name, {"x": name}]})
    assert json.loads(text) == {name: [name, {"x": name}]}
    assert not re.search("[<>&\u2028\u2029]", text)


@pytest.mark.parametrize("name", NASTY)
def test_a_label_shows_a_name_character_by_character(name):
    assert "<" not in literal(name)
    assert unescape(literal(name)) == name
    broken = literal(name, 10)
    assert max(len(unescape(line)) for line in broken.split("<br>")) <= 10
    assert "".join(unescape(broken.replace("<br>", " ")).split()) == "".join(name.split())


class Page(HTMLParser):
    """Texts outside scripts, the text of each script, and all tags, as a browser would part them."""

    def __init__(self, html):
        super().__init__()
        self.texts, self.scripts, self.tags, self._in = [], [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._in = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, text):
        if self._in == "script":
            self.scripts.append(text)
        elif self._in is None:
            self.texts.append(text)


def test_a_page_full_of_odd_names_has_the_tags_of_a_plain_one_and_shows_the_names_whole():
    plain_page = Page(
        page_html(page_info(made_result(policies=("lru", "odd"), hardware="odd", trace_path="odd")))
    )
    odd = made_result(policies=("lru", ODD_NAME), hardware=ODD_NAME, trace_path=ODD_NAME)
    odd.run["warnings"] = [ODD_NAME]
    page = Page(page_html(page_info(odd)))
    assert sorted(page.tags) == sorted(plain_page.tags)
    assert sum(ODD_NAME in text for text in page.texts) >= 4
    data = next(json.loads(text) for text in page.scripts if text.lstrip().startswith('{"run"'))
    assert data["run"]["hardware"]["name"] == data["run"]["trace"]["path"] == ODD_NAME
    assert ODD_NAME in {row["policy"] for row in data["rows"]}


def test_the_data_in_a_page_are_the_results_own_rows():
    result = made_result()
    page = Page(page_html(page_info(result)))
    data = next(json.loads(text) for text in page.scripts if text.lstrip().startswith('{"run"'))
    assert data["rows"] == plain_rows(result.rows)
    assert data["run"] == plain(result.run)
