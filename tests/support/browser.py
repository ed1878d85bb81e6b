"""Pages in Debian's Chromium, which `make browser` installs."""

from __future__ import annotations

import shutil
from typing import Any

CHROMIUM = shutil.which("chromium")


def opened(browser: Any, address: str, path: str = "", **options: Any) -> Any:
    """A page in a browser of its own, with `errors` that the browser says of it."""
    page = browser.new_context(**options).new_page()
    page.errors = []
    page.on("console", lambda message: page.errors.append(message.text))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(address + path)
    return page
