"""The page of a validation in headless Chromium: it draws, complains of nothing, cuts no text, stays offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from codesign.reports.validation import validation_report
from page_checks import CHROMIUM, OpenedPage
from small_validations import validation

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]
EVIL = "a</SCRIPT><b>\"x' & <y>\\"


@pytest.mark.parametrize("width", [1400, 420])
def test_every_figure_is_drawn_without_an_error_without_the_network_and_no_text_is_cut(
    browser: Any, tmp_path: Path, width: int
) -> None:
    opened = OpenedPage(browser, validation_report(validation(EVIL), tmp_path / "page.html"), width)
    page = opened.page
    opened.passes(3)
    assert EVIL in page.evaluate("document.body.textContent")
    page.close()
