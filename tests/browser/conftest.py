"""One Chromium for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from page_checks import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
