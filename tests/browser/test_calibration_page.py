"""The page of a calibration in headless Chromium: it draws, complains of nothing, asks for nothing, fits the window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calibration_folders import OPERATIONS, calibrated
from codesign.reports.calibration import calibration_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "a</SCRIPT><b>\"x' & <y>\\"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    calibrated(folder, cpu=EVIL)
    return calibration_report(folder, folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1400, 420])
def test_every_figure_is_drawn_without_an_error_and_without_the_network(
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
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    drawn = page.locator(".js-plotly-plot .main-svg:first-child")
    assert drawn.count() == 3 + 2 * len(OPERATIONS)  # coverage, answers, roofline; two of each operation
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_table_links_to_each_operation_and_a_hostile_name_is_only_text(
    browser: Any, page_file: Path
) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    for operation in OPERATIONS:
        href = page.locator("#main-table a", has_text=operation).first.get_attribute("href")
        assert page.locator(f"{href} h2").inner_text() == operation
    assert EVIL in page.evaluate("document.body.textContent")
    assert page.locator("body b", has_text="x' &").count() == 0
    page.close()


def test_the_legend_hides_an_operation_in_the_roofline_and_shows_it_again(
    browser: Any, page_file: Path
) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(page_file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    shown = "document.getElementById('roofline-0').data.filter(t => t.meta && t.visible !== false).length"
    button = page.locator(".legend button", has_text="norm")
    before = page.evaluate(shown)
    button.click()
    page.wait_for_function(f"{shown} === {before - 1}")
    button.click()
    page.wait_for_function(f"{shown} === {before}")
    page.close()
