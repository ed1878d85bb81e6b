"""The console as a program for a browser: addresses, and what is refused.

A page of another site cannot use a console that it finds on this machine: a request is answered
only if its `Host` is a name of the console (DNS rebinding), no answer may be read by other sites,
and pages load nothing and run nothing but the one script and the one style sheet that are served
here. Beyond this machine a token is asked for.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from onyx.console.live import LivePages, TooManyViewers
from onyx.console.pages import HERE, Console, templates
from onyx.requests.tokens import Tokens, bearer
from onyx.serving.replies import Reply

COOKIE = "onyx-console"
LOGIN_BYTES_MAX = 4_096
QUERY_CHARACTERS_MAX = 8_000
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # else a form comes from `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES: Mapping[str, str] = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
OPEN = ("/health", *(f"/static/{name}" for name in FILES))
"""Paths that need no token: they say nothing of the cluster."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """Who may look.

    Args:
        hosts: names of the console, without ports; `/health` is answered under any name.
        tokens: one of which is asked for, if they are wanted.
    """

    def __init__(self, hosts: Sequence[str], tokens: Tokens) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens = tokens

    def knows(self, host: str) -> bool:
        """Whether a request is for this console and not for a name that leads here, too."""
        name = host.lower()
        if not name.endswith("]"):
            head, colon, port = name.rpartition(":")
            name = head if colon and port.isdigit() else name
        return name in self._hosts

    def lets_in(self, authorization: str, cookie: str) -> bool:
        """Whether a request shows the token, as programs do, or browsers that have logged in."""
        shown = bearer(authorization.encode("utf-8", "replace"))
        return not self._tokens.wanted or self.is_token(shown) or self.is_token(_out_of(cookie))

    def is_token(self, shown: bytes) -> bool:
        """Whether it is a token of the console."""
        return bool(shown) and self._tokens.opened_by(shown)


class ConsoleApp:
    """The console as an ASGI function."""

    def __init__(self, console: Console, guard: Guard, over_tls: bool = False) -> None:
        """`over_tls`: whether a browser reaches it by HTTPS alone."""
        self._console, self._guard, self._over_tls = console, guard, over_tls
        self._channels = LivePages(console)
        routes = [
            Route("/health", _health),
            Route("/static/{name}", _file),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/live", self._live),
            Route("/{path:path}", self._page),
        ]
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        refused = self._refused(Request(scope))
        app = self._app if refused is None else refused

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = ((k.lower().encode(), v.encode()) for k, v in HEADERS.items())
                added = [each for each in more if each[0] not in own]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        with suppress(asyncio.CancelledError):  # whoever cancels has closed the connection
            await app(scope, receive, send_with_headers)

    def unreadable(self, why: str) -> Reply:
        """The reply to what is not even a request."""
        return Reply(400, f"{why}\n".encode(), content_type="text/plain; charset=utf-8")

    def _refused(self, request: Request) -> Response | None:
        """The answer to who may not have what is asked for; None: he may."""
        path = request.scope["path"]
        if path == "/health":
            return None
        if not self._guard.knows(request.headers.get("host", "")):
            return PlainTextResponse(
                "This console is not known by that name: see `onyx console --help` (--name).\n", 421
            )
        if path in OPEN or path == "/login":
            return None
        shown = request.headers.get("authorization", "")
        if self._guard.lets_in(shown, request.cookies.get(COOKIE, "")):
            return None
        if "text/html" in request.headers.get("accept", "") and path != "/live":
            return RedirectResponse("/login", 303)
        text = "Show the token: `Authorization: Bearer TOKEN`, or log in with a browser.\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Bearer realm="onyx"'})

    def _page(self, request: Request) -> Response:
        page = self._console.page(request.url.path, _query(request.url.query))
        return HTMLResponse(self._console.html(page), page.code)

    async def _live(self, request: Request) -> Response:
        query = _query(request.query_params.get("q", ""))
        path = request.query_params.get("path", "/")[:400]
        page = await asyncio.to_thread(self._console.page, path, query)
        if not page.is_live:
            return Response(status_code=204)  # after which a browser asks no more
        address = (path, tuple(sorted(query.items())))
        stream = self._channels.follow(address)
        try:
            first = await anext(stream)
        except TooManyViewers:
            return PlainTextResponse("as many look as may\n", 503, {"Retry-After": "10"})

        async def texts() -> Any:
            yield first
            try:
                async for text in stream:
                    yield text
            finally:
                await stream.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(texts(), media_type="text/event-stream")

    async def _login(self, request: Request) -> Response:
        wrong = False
        if request.method == "POST":
            shown = dict(parse_qsl((await _body(request)).decode("utf-8", "replace")))
            token = shown.get("token", "").strip().encode()
            if self._guard.is_token(token):
                answer = RedirectResponse("/", 303)
                answer.set_cookie(
                    COOKIE, token.hex(), httponly=True, samesite="strict", secure=self._over_tls
                )
                return answer
            wrong = True
        text = templates().get_template("login.html").render(wrong=wrong)
        return HTMLResponse(text, 403 if wrong else 200)


async def _body(request: Request) -> bytes:
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > LOGIN_BYTES_MAX:
            return b""
    return found


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("there is no such file\n", 404)
    return Response(_bytes(name), media_type=FILES[name])


@cache
def _bytes(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()


def _query(text: str) -> dict[str, str]:
    return dict(parse_qsl(text[:QUERY_CHARACTERS_MAX]))


def _out_of(cookie: str) -> bytes:
    """The token in a cookie, where it is in hex: a cookie cannot have all characters."""
    try:
        return binascii.unhexlify(cookie)
    except ValueError:
        return b""
