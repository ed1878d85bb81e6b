"""A browser for all tests of the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.browser import CHROMIUM


@pytest.fixture(scope="module")  # while it is there, the thread has an event loop that runs
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium: `make browser` installs it")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
