"""The console in a real browser: Debian's Chromium, which `make browser` installs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import opened
from tests.support.console_world import GROUPS, HOSTILE, ConsoleWorld, answered, measured, shop

from onyx.console import serve
from onyx.console.serve import ConsoleOptions, serving
from onyx.settings import Settings

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
PAGES = (
    "/", "/jobs/orders", "/jobs/clicks", "/jobs/orders/manifest", "/jobs/orders/tasks/orders",
    "/jobs/orders/tasks/enrich", f"/workers/{GROUPS[0]}", f"/peers/{GROUPS[0][:8]}-0", "/time",
    "/cluster", "/ask", "/ask?job=orders&state=totals.spent", "/nix",
)  # fmt: skip
JOBS = 1_000
PAGE_S_MAX = 10.0
"""It only says that something hangs: the figure is one of a benchmark."""

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # a browser takes seconds of CPU for each page
]
axe = pytest.importorskip("axe_playwright_python.sync_playwright")


@pytest.fixture(scope="module")
def world() -> ConsoleWorld:
    return shop(JOBS)


@pytest.fixture(scope="module")
def address(world: ConsoleWorld) -> Iterator[str]:
    figures = measured(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "asker", lambda *_: lambda _: figures)
        patch.setattr(serve, "answerer", lambda *_: answered)
        with serving(world.client, Settings(tenancy_id="shop"), ConsoleOptions(port=0)) as found:
            yield found.rstrip("/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_usable_by_everybody(browser: Any, address: str, scheme: str) -> None:
    for path in PAGES:
        page = opened(browser, address, path, color_scheme=scheme)
        found = axe.Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        page.context.close()


def test_a_narrow_page_scrolls_only_downwards_and_policy_blocks_nothing(
    browser: Any, address: str
) -> None:
    for path in PAGES:
        begun = time.monotonic()
        page = opened(browser, address, path, viewport={"width": 360, "height": 740})
        assert time.monotonic() - begun < PAGE_S_MAX
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert [each for each in page.errors if "404" not in each] == []
        page.context.close()


def test_a_page_follows_what_happens_and_keeps_what_is_in_hand(
    browser: Any, address: str, world: ConsoleWorld
) -> None:
    page = opened(browser, address, "/?q=orders")
    page.wait_for_selector("#live[data-state=live]")
    page.focus("#q")
    page.keyboard.press("End")
    page.keyboard.type("-2")
    world.submit("orders-2")
    page.wait_for_selector("text=orders-2")
    assert page.evaluate("[document.activeElement.id, document.activeElement.value]") == [
        "q",
        "orders-2",
    ]
    page.context.close()


def test_all_is_reached_with_the_keyboard(browser: Any, address: str) -> None:
    page = opened(browser, address, "/?q=clicks")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id").startswith("job-"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('clicks')")
    page.goto(f"{address}/time?at=40")
    page.focus("#at")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**at=41*")
    page.context.close()


def test_without_scripts_pages_say_the_same(browser: Any, address: str) -> None:
    page = opened(browser, address, "/jobs/clicks", java_script_enabled=False)
    assert "What is slow, and why" in page.content()
    assert page.locator("#live").is_hidden()
    page.goto(f"{address}/time?at=40")
    page.click("#step-behind")
    assert "at=41" in page.url
    page.context.close()


def test_hostile_names_stay_text(browser: Any) -> None:
    world = ConsoleWorld()
    world.join("a" * 36, peers=8, tags=(HOSTILE, "x" * 256))
    job = world.submit("orders")
    world.stall(job, "enrich", HOSTILE + "y" * 100_000)
    with serving(world.client, Settings(tenancy_id=HOSTILE), ConsoleOptions(port=0)) as address:
        worker = "a" * 36
        paths = ("", "jobs/orders", "cluster", "time", "jobs/orders/tasks/enrich", "ask?job=orders",
                 f"workers/{worker}", *(f"peers/{worker[:8]}-{n}" for n in range(8)))  # fmt: skip
        for path in paths:
            page = opened(browser, address, path, viewport={"width": 360, "height": 740})
            page.on("dialog", lambda dialog: pytest.fail("a name ran"))
            assert page.locator("main script").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            page.context.close()


def test_pictures_of_the_pages_are_taken(browser: Any, address: str, tmp_path: Path) -> None:
    """With ONYX_TEST_PICTURES=1 those of the documentation are renewed."""
    folder = PICTURES if os.environ.get("ONYX_TEST_PICTURES") else tmp_path
    pages = (
        ("jobs", "/?q=s&sort=state", 760), ("job", "/jobs/clicks", 1_000),
        ("time", "/time?at=90", 860),
    )  # fmt: skip
    for name, path, height in pages:
        page = opened(browser, address, path, viewport={"width": 1180, "height": height})
        page.wait_for_selector("h1")
        if page.get_attribute("body", "data-live"):
            page.wait_for_selector("#live[data-state=live]")
        page.screenshot(path=folder / f"console-{name}.png")
        page.context.close()
        assert (PICTURES / f"console-{name}.png").exists()
