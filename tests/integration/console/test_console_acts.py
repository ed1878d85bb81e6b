"""Actions in a real browser: by keyboard, without scripts, for everybody, on narrow pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.browser import opened
from tests.support.console_world import ASKED, ConsoleWorld

from onyx.console.serve import ConsoleOptions, serving
from onyx.settings import Settings

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,  # a browser takes seconds of CPU for each page
]
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
SET = "/act/set/first?task=orders&maxPending=500"
PAGES = (
    "/jobs/first", "/act/kill/first", "/act/set/first", "/act/set/first?task=orders", SET,
    "/act/set/first?task=orders&maxPending=x", "/act/resume/first", "/jobs/first/upgrade",
    "/append/second",
)  # fmt: skip


@pytest.fixture
def world() -> ConsoleWorld:
    world = ConsoleWorld()
    world.join("a" * 36, peers=8)
    world.submit("orders", id="first")
    world.submit("asked", id="second", catalog=ASKED)
    return world


@pytest.fixture
def address(world: ConsoleWorld) -> Iterator[str]:
    """Of a console with actions, with the token that opens it."""
    options = ConsoleOptions(port=0, has_actions=True)
    with serving(world.client, Settings(tenancy_id="shop"), options) as found:
        yield found


def state(world: ConsoleWorld) -> str:
    return world.client.status(world.client.named("orders")).state


def test_a_job_is_suspended_with_the_keyboard_alone(
    browser: Any, address: str, world: ConsoleWorld
) -> None:
    page = opened(browser, address)
    assert page.url.endswith("/")  # the token is not in the address any more
    page.goto(page.url + "jobs/first")
    page.wait_for_selector("#live[data-state=live]")
    page.focus("#act-suspend")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Suspend orders')")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "do":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Done: suspended")
    assert state(world) == "suspended"
    world.client.resume(world.client.named("orders"))
    page.wait_for_selector("#act-suspend")  # the page follows
    assert page.errors == []
    page.context.close()


def test_without_scripts_a_value_is_set_and_a_manifest_is_tried(
    browser: Any, address: str, world: ConsoleWorld
) -> None:
    page = opened(browser, address, java_script_enabled=False)
    page.goto(page.url + "act/set/first")
    page.select_option("#task", "orders")
    page.click("button:has-text('Next')")
    page.fill("#maxPending", "500")
    page.click("button:has-text('Next')")
    page.click("#do")
    assert "?done=" in page.url
    assert "set: orders maxPending=500" in page.inner_text("main")
    page.goto(page.url.partition("?")[0] + "/upgrade")
    page.set_input_files("#file", {"name": "a", "mimeType": "text/plain", "buffer": b"kind: [}"})
    page.click("button:has-text('Try')")
    assert "It would be refused" in page.inner_text("main")
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_actions_are_usable_by_everybody(browser: Any, address: str, scheme: str) -> None:
    page = opened(browser, address, color_scheme=scheme, viewport={"width": 360, "height": 740})
    home = page.url.rstrip("/")
    for path in PAGES:
        page.goto(home + path)
        found = axe.Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    page.context.close()


def test_a_page_of_another_site_kills_nothing(
    browser: Any, address: str, world: ConsoleWorld
) -> None:
    page = opened(browser, address)
    there = page.url + "act/kill/first"
    page.goto("about:blank")
    page.set_content(f'<form method="post" action="{there}"><button>Win a prize</button></form>')
    page.click("button")
    page.wait_for_selector("text=/Token of this console|did not come from a page/")
    assert state(world) == "running"
    page.context.close()
