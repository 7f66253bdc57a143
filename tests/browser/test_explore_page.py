"""The page of an exploration in headless Chromium: it unpacks and draws, complains of nothing, cuts no text, stays offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codesign.reports.explore import explore_report
from page_checks import CHROMIUM, OpenedPage
from small_explorations import explored

EVIL = "a</SCRIPT><b>\"x' & <y>\\"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]

FIGURES = 2 * 5  # a machine: front, lines, where the time goes at two points, and one for both over batches

@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exploration")
    return explore_report(explored(folder, name=json.dumps(EVIL)), folder / "report.html")


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    opened.goto(page_file.as_uri())
    opened.wait_for_selector("body[data-drawn]")
    yield opened
    opened.close()


@pytest.mark.parametrize("width", [1400, 420])
def test_every_figure_is_drawn_without_an_error_without_the_network_and_no_text_is_cut(
    browser: Any, page_file: Path, width: int
) -> None:
    opened = OpenedPage(browser, page_file, width)
    page = opened.page
    opened.passes(FIGURES)
    page.close()


def test_the_page_says_what_to_choose_and_a_hostile_name_is_only_text(page: Any) -> None:
    text = page.inner_text("body")
    for words in ("What should I choose", "knee", "of the time on the profile", "nothing of it measured", "from batch"):
        assert words in text
    assert EVIL in page.evaluate("document.body.textContent")
    assert page.locator("body b", has_text="x' &").count() == 0


def test_the_box_beside_a_design_says_its_shape_and_its_values_with_bands(page: Any) -> None:
    page.evaluate("Plotly.Fx.hover('machine-0-front-figure', [{curveNumber: 1, pointNumber: 0}])")
    box = page.locator("#machine-0-front-figure .hovertext").first
    box.wait_for()
    told = box.text_content()
    assert told.startswith("N")
    assert "latency at bulk: " in told
    assert " to " in told
    assert "NaN" not in told
    assert "%{" not in told


def test_another_pair_of_measures_can_be_chosen(page: Any) -> None:
    title = "document.getElementById('machine-0-front-figure').layout.xaxis.title.text"
    assert page.evaluate(title) == "latency at interactive (ms)"
    page.select_option('select[data-for="machine-0-front-figure"]', "2")
    page.wait_for_function(f"{title} === 'latency at bulk (ms)'")


def test_the_legend_hides_a_part_in_every_bar(page: Any) -> None:
    shown = "document.getElementById('machine-0-parts-0').data.filter(t => t.visible !== false).length"
    before = page.evaluate(shown)
    page.locator(".legend button", has_text="mixers").first.click()
    page.wait_for_function(f"{shown} === {before - 1}")


def test_an_old_browser_is_told_why_there_are_no_figures(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(page_file.as_uri())
    page.wait_for_selector("#no-figures:not([hidden])")
    assert "What should I choose" in page.inner_text("body")
    page.close()
