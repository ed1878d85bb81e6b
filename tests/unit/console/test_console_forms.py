"""Forms that are sent to the console: requests as browsers, other sites and copies of them make."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from onyx.console import forms
from onyx.console.forms import SEAL, SESSION, FormRefused, Forms, read_form

ENCODED = "application/x-www-form-urlencoded"
BOUND = "----b0undary"


class Browser:
    """Who looks, with the cookie that he was given."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.forms = Forms(lambda: self.now_s)
        self.cookie = ""

    def request(self, path: str = "/kill", body: bytes = b"", **headers: str) -> Request:
        given = {
            "host": "localhost:8484", "origin": "http://localhost:8484", "content-type": ENCODED,
            "cookie": f"{SESSION}={self.cookie}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }  # fmt: skip
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "http",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive)

    def shown(self, path: str = "/kill", who: str = "ada") -> str:
        """The seal of a form that is shown to him."""
        form = self.forms.sealed(self.request(path), who)
        answer = form.shown(Response(), over_tls=False).headers["set-cookie"]
        assert "HttpOnly" in answer
        assert "SameSite=strict" in answer
        self.cookie = form.session
        return form.seal

    def send(self, seal: str, path: str = "/kill", who: str = "ada") -> str:
        """Why a form does not count; empty: it does."""
        try:
            self.forms.check(self.request(path), who, {SEAL: seal})
        except FormRefused as refused:
            return str(refused)
        return ""


def test_a_form_counts_once() -> None:
    browser = Browser()
    seal, second = browser.shown(), browser.shown()
    assert browser.send(seal) == ""
    assert "was sent already" in browser.send(seal)
    assert browser.send(second) == ""


def test_a_form_counts_for_whom_and_where_and_as_long_as_it_was_shown() -> None:
    browser = Browser()
    seal = browser.shown()
    assert "not shown to you" in browser.send(seal, who="grace")
    assert "not shown to you" in browser.send(seal, path="/suspend")
    browser.now_s += forms.SEAL_AGE_MAX_S + 1
    assert "is old" in browser.send(seal)


@pytest.mark.parametrize("seal", ["", ".", "..", "a.b.c", "é.1.ff", "0" * 10_000])
@pytest.mark.parametrize("cookie", ["", "0" * 32, "é" * 32])
def test_a_seal_that_nobody_made_counts_for_nothing(seal: str, cookie: str) -> None:
    browser = Browser()
    browser.cookie = cookie
    assert "not shown to you" in browser.send(seal)


def test_a_seal_of_another_browser_or_another_process_counts_for_nothing() -> None:
    browser, other = Browser(), Browser()
    seal, others = browser.shown(), other.shown()
    assert "not shown to you" in browser.send(others)
    browser.cookie = other.cookie
    assert "not shown to you" in browser.send(seal)


def test_what_has_counted_is_forgotten_when_it_is_too_old_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forms, "SPENT_MAX", 2)
    browser = Browser()
    assert [browser.send(browser.shown()) for _ in range(2)] == ["", ""]
    assert "too many forms" in browser.send(browser.shown())
    browser.now_s += forms.SEAL_AGE_MAX_S + 1
    assert browser.send(browser.shown()) == ""


def read(body: bytes, over_tls: bool = False, most: int = 4_096, **headers: str) -> Any:
    request = Browser().request(body=body, **headers)
    try:
        return asyncio.run(read_form(request, most, over_tls))
    except FormRefused as refused:
        return refused.code


class Piece(bytes):
    """A byte of a body that counts what is copied to stand before it."""

    copied = 0

    def __radd__(self, before: Any) -> bytes:
        Piece.copied += len(before)
        return bytes(before) + bytes(self)


def test_a_form_that_comes_byte_by_byte_is_not_copied_for_each() -> None:
    request, left = Browser().request(), 1_000

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": Piece(b"a"), "more_body": left > 0}

    request._receive = receive
    body = asyncio.run(forms.body_of(request, 4_096))
    assert (body, Piece.copied) == (b"a" * 1_000, 0)


@pytest.mark.parametrize(
    "origin",
    [
        "", "null", "http://evil.example", "http://localhost", "http://localhost:3000",
        "http://evil.localhost:8484", "ftp://localhost:8484", "localhost:8484", "http://é",
    ],
)  # fmt: skip
def test_a_form_of_another_site_is_not_read(origin: str) -> None:
    assert read(b"a=1", origin=origin) == 403


def test_over_tls_a_form_comes_over_tls() -> None:
    assert read(b"a=1", over_tls=True) == 403
    assert read(b"a=1", over_tls=True, origin="https://localhost:8484") == {"a": "1"}


def test_fields_and_files_are_read_and_what_is_none_is_refused() -> None:
    assert read(b"a=1&b=%C3%A9&c=&a=2") == {"a": "2", "b": "é", "c": ""}
    multipart = "\r\n".join((
        f"--{BOUND}", 'Content-Disposition: form-data; name="text"', "", "", f"--{BOUND}",
        'Content-Disposition: form-data; name="file"; filename="name.yaml"',
        "Content-Type: application/yaml", "", "a: é", "b: 1", "", f"--{BOUND}--", "",
    )).encode()  # fmt: skip
    kind = f"multipart/form-data; boundary={BOUND}"
    assert read(multipart, content_type=kind) == {"text": "", "file": "a: é\r\nb: 1\r\n"}
    assert read(multipart, content_type="multipart/form-data") == 400
    assert read(b"", content_type=kind) == {}
    assert read(b"a=\xff") == 400
    assert read(b"&".join([b"a=1"] * 65)) == 400
    assert read(b"{}", content_type="application/json") == 415
    assert read(b"a=" + b"x" * 4_096) == 413
