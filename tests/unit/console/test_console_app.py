"""Who may look at a console, and what it answers: an ASGI function that is called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_world import ConsoleWorld

from onyx.base.seams import SystemClock
from onyx.console import live, pages
from onyx.console.app import ConsoleApp, Guard
from onyx.console.serve import ConsoleOptions
from onyx.errors import Unavailable, UserError
from onyx.requests.tokens import Tokens

HOSTS = ConsoleOptions().hosts


def app(token: str = "", hosts: tuple[str, ...] = HOSTS) -> ConsoleApp:
    world = ConsoleWorld()
    world.submit("orders", id="first")
    guard = Guard(hosts, Tokens(SystemClock(), value=token or None))
    return ConsoleApp(world.console(), guard)


class Answer:
    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.code: int = messages[0]["status"]
        self.headers = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
        self.text = b"".join(each.get("body", b"") for each in messages[1:]).decode()


def scope_of(path: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
    at, _, query = path.partition("?")
    return {
        "type": "http", "method": method, "path": at, "raw_path": at.encode(), "root_path": "",
        "query_string": query.encode(), "http_version": "1.1", "scheme": "http",
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8484),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip


def ask(
    on: ConsoleApp, path: str, method: str = "GET", body: bytes = b"", **headers: str
) -> Answer:
    given = {"Host": "localhost:8484", **{k.replace("_", "-"): v for k, v in headers.items()}}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(on(scope_of(path, method, given), receive, send))
    return Answer(sent)


def test_pages_load_and_run_nothing_from_elsewhere() -> None:
    for path in ("/", "/jobs/first", "/time", "/nothing", "/login", "/static/console.js"):
        headers = ask(app(), path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_no_page_has_a_script_a_style_or_an_address_of_elsewhere_inside() -> None:
    for path in ("/", "/jobs/first", "/jobs/first/manifest", "/time", "/cluster", "/login"):
        text = ask(app(), path).text
        assert "<script" not in text.replace('<script src="/static/console.js" defer></script>', "")
        assert "<style" not in text
        assert " style=" not in text
        assert " on" not in {part[:3] for part in text.split("<")}
        assert "javascript:" not in text
        assert "//" not in text.replace("http://www.w3.org", "").replace("://", "")


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:8484", 200), ("LOCALHOST", 200), ("127.0.0.1:8484", 200), ("[::1]:8484", 200),
        ("evil.example", 421), ("localhost.evil.example", 421), ("", 421), ("127.0.0.1@x", 421),
    ],
)  # fmt: skip
def test_a_request_for_another_name_is_refused(host: str, code: int) -> None:
    assert ask(app(), "/", Host=host).code == code


@pytest.mark.parametrize("path", ["/", "/jobs/first", "/cluster", "/time"])
def test_too_many_parameters_are_no_error(path: str) -> None:
    many = "&".join(f"a{number}=1" for number in range(100))
    assert ask(app(), f"{path}?{many}").code == 200


def test_a_page_with_too_many_parameters_is_followed() -> None:
    console = app()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    query = "%26".join(f"a{number}%3D1" for number in range(100))
    scope = scope_of(f"/live?path=/&q={query}", "GET", {"Host": "localhost"})
    asyncio.run(console(scope, receive, send))
    assert sent[0]["status"] == 200


def test_a_filter_stands_beside_any_number_of_other_parameters() -> None:
    many = "&".join(f"a{number}=1" for number in range(100))
    assert "No job is like that" in ask(app(), f"/?{many}&q=nothing").text


@pytest.mark.parametrize("page", ["/time&q=at%3D3", "/jobs/first/manifest", "/jobs/nothing"])
def test_a_page_that_cannot_change_is_not_followed(page: str) -> None:
    assert ask(app(), f"/live?path={page}").code == 204


def test_an_entry_that_could_not_be_read_is_followed_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.0)
    world = ConsoleWorld()
    world.submit("orders", id="first")
    console = world.console()
    real, tries = pages.change_at, count()

    def away_at_first(*given: Any) -> Any:
        if next(tries) < 2:
            raise Unavailable("the archive is away")
        return real(*given)

    monkeypatch.setattr(pages, "change_at", away_at_first)
    assert console.page("/time", {"at": "0"}).is_live
    channels = live.LivePages(console)

    async def look() -> list[str]:
        return [each async for each in channels.follow(("/time", (("at", "0"),)))]

    sent = asyncio.run(look())
    assert "the archive is away" in sent[1]
    assert "submit-job" in sent[-1]
    assert next(tries) == 3


def test_health_is_answered_under_any_name_and_says_nothing() -> None:
    answer = ask(app("secret"), "/health", Host="10.0.0.7:8484")
    assert (answer.code, answer.text) == (200, "ok\n")


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Basic secret", "Bearer "])
def test_without_the_token_nothing_is_shown(shown: str) -> None:
    console = app("secret")
    for path in ("/", "/jobs/first", "/live?path=/"):
        assert ask(console, path, Authorization=shown).code == 401


def test_a_program_shows_the_token_and_a_browser_logs_in() -> None:
    console = app("secret")
    assert ask(console, "/", Authorization="Bearer secret").code == 200
    asked = ask(console, "/", Accept="text/html")
    assert (asked.code, asked.headers["location"]) == (303, "/login")
    assert ask(console, "/login", "POST", b"token=wrong").code == 403
    entered = ask(console, "/login", "POST", b"token=secret")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    proxied = ask(console, "/login", "POST", b"token=secret", Origin="https://localhost")
    assert "Secure" in proxied.headers["set-cookie"]
    assert ask(console, "/", Cookie=cookie.partition(";")[0]).code == 200
    assert ask(console, "/", Cookie="onyx-console=zz").code == 401


def test_only_what_is_listed_is_served_as_a_file() -> None:
    assert ask(app(), "/static/console.css").headers["content-type"].startswith("text/css")
    for name in ("../app.py", "app.py", "%2e%2e/app.py", "..%2fapp.py"):
        assert ask(app(), f"/static/{name}").code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_is_changed_by_any_method(method: str) -> None:
    assert ask(app(), "/jobs/first", method).code == 405


def test_a_console_that_strangers_reach_wants_a_token(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--token-file"):
        ConsoleOptions(host="0.0.0.0").check()
    ConsoleOptions(host="0.0.0.0", token_file=str(tmp_path / "token")).check()
    ConsoleOptions(host="127.0.0.2").check()


def test_all_viewers_of_a_page_are_sent_one_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.0)
    world = ConsoleWorld()
    world.submit("orders", id="first")
    console = world.console()
    made = 0
    real = console.texts

    def counted(page: Any) -> list[str]:
        nonlocal made
        made += 1
        return real(page)

    monkeypatch.setattr(console, "texts", counted)
    channels = live.LivePages(console)

    async def look(viewers: int) -> list[dict[str, str]]:
        streams = [channels.follow(("/", ())) for _ in range(viewers)]
        for each in streams:
            assert (await anext(each)).startswith("retry:")
        first = [await anext(each) for each in streams]
        for each in streams:
            await each.aclose()  # type: ignore[attr-defined]
        return [json.loads(each.removeprefix("data: ")) for each in first]

    found = asyncio.run(look(50))
    assert len(found) == 50
    assert all("orders" in each["jobs"] for each in found)
    assert made < 10
    assert channels.viewers == 0


def test_no_more_look_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "VIEWERS_MAX", 0)
    answer = ask(app(), "/live?path=/")
    assert (answer.code, answer.headers["retry-after"]) == (503, "10")


def test_who_never_reads_holds_nobody_up_and_no_more_than_some_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.0)
    console = ConsoleWorld().console()
    ticks = count()
    monkeypatch.setattr(console, "texts", lambda page: [f"{next(ticks)}" for _ in page.parts])
    channel = live.LivePage(console, ("/", ()))

    async def look() -> int:
        never, reads = channel.enter(), channel.enter()
        for _ in range(3 * live.QUEUE_MAX):
            await channel._tick()
            reads.get_nowait()
        return never.qsize()

    assert asyncio.run(look()) == live.QUEUE_MAX
