"""The page of an exploration in headless Chromium: it unpacks and draws, complains of nothing, cuts no text, stays offline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codesign.reports.explore import explore_report
from small_explorations import explored

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "a</SCRIPT><b>\"x' & <y>\\"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]

FIGURES = 2 * 5  # a machine: front, lines, where the time goes at two points, and one for both over batches
CUT = """() => [...document.querySelectorAll(".js-plotly-plot")].flatMap((plot) => {
  const around = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("svg text")].filter((text) => {
    const box = text.getBoundingClientRect();
    const seen = box.width > 2 && text.textContent.trim() && getComputedStyle(text).visibility !== "hidden";
    return seen && (box.left < around.left - 1 || box.right > around.right + 1 || box.bottom > around.bottom + 1);
  }).map((text) => `${plot.id}: ${text.textContent}`);
})"""
SMALL = """() => [...document.querySelectorAll("main *, .js-plotly-plot svg text")].filter((one) => {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const shown = one.getBoundingClientRect().width > 2 && !["SCRIPT", "STYLE"].includes(one.tagName);
  return own && shown && !one.closest(".axis-extent") && parseFloat(getComputedStyle(one).fontSize) < 10.5;
}).map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exploration")
    return explore_report(explored(folder, name=json.dumps(EVIL)), folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


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
    page = browser.new_page(viewport={"width": width, "height": 1000})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    page.wait_for_timeout(500)
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.locator(".js-plotly-plot .main-svg:first-child").count() == FIGURES
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT) == []
    assert page.evaluate(SMALL) == []
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
