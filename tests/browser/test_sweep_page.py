"""The page of a sweep in headless Chromium: it draws, complains of nothing, cuts no text, stays offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from codesign.reports.sweep import sweep_report
from codesign.workbench.sweep import sweep
from page_checks import CHROMIUM, OpenedPage
from small_studies import write_study

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    axes = (
        'link_bytes_per_s = [1e9, 8e9, 6.4e10]\npolicy = ["lru", "fifo", "least-stale", "belady-mandatory", "never"]\n'
        'prefetch = ["none", "perfect"]\ncapacity = ["10%", "25%", "50%"]\n'
    )
    return sweep_report(sweep(write_study(folder, axes), out=folder / "run", workers=1), folder / "report.html")


@pytest.mark.parametrize("width", [1400, 420])
def test_every_figure_is_drawn_without_an_error_without_the_network_and_no_text_is_cut(
    browser: Any, page_file: Path, width: int
) -> None:
    opened = OpenedPage(browser, page_file, width)
    page = opened.page
    opened.passes()
    assert page.locator(".js-plotly-plot").count() >= 6  # heat, curves, kinds of miss, traffic, front, links
    page.close()


def test_the_page_says_what_to_choose_and_where_its_numbers_come_from(browser: Any, page_file: Path) -> None:
    page = OpenedPage(browser, page_file, 1400).page
    text = page.inner_text("body")
    for words in ("should I choose", "Layer by layer", "bootstrap over sequences", "least-stale", "belady-mandatory", "regime"):
        assert words.lower() in text.lower()
    page.close()
