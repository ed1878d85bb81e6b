"""The console as a program for a browser: addresses, and what is refused.

A page of another site cannot use a console that it finds on this machine: a request is answered
only if its `Host` is a name of the console (DNS rebinding), no answer may be read by other sites,
and pages load nothing and run nothing but the one script and the one style sheet that are served
here. Beyond this machine a token is asked for.
"""

from __future__ import annotations

import asyncio
import binascii
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from onyx.console.actions import ACTIONS, Actions
from onyx.console.append_page import SEGMENT_BYTES_MAX
from onyx.console.forms import FormRefused, Forms, body_of, read_form
from onyx.console.live import LivePages, TooManyViewers
from onyx.console.pages import HERE, Console, Page, PagePart, missing, templates
from onyx.errors import JobRefused, OnyxError, UserError
from onyx.ids import JobId
from onyx.replica.authors import PROXY, TOKEN, UNKNOWN, author
from onyx.requests.tokens import Tokens, bearer
from onyx.serving.replies import Reply

T = TypeVar("T")
COOKIE = "onyx-console"
QUERY_CHARACTERS_MAX = 8_000
VIEWER = "onyx.viewer"
"""Where the scope of a request says who looks."""
LOGIN_BYTES_MAX = ACT_BYTES_MAX = 4_096
MANIFEST_BYTES_MAX = 2_500_000
"""A manifest of 1 MiB in the text and another one as a file."""
ACTING_MAX = 4
"""Actions at once: while ZooKeeper hangs, others still find threads that make their pages."""
WITHOUT_ACTIONS = (
    "This console only shows. With `onyx console --actions`, or `console.actions` of the chart, "
    "jobs can be suspended, resumed, drained, changed and killed here."
)
UNSURE = "Look at what has happened to the job before you try again."
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
        unnamed: what is done with a token without a name is recorded as done by this one.
        user_header: name of the header in which a proxy that shows a token says for whom it asks.
    """

    def __init__(
        self, hosts: Sequence[str], tokens: Tokens, unnamed: str = UNKNOWN, user_header: str = ""
    ) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens, self._unnamed, self._user_header = tokens, unnamed, user_header

    def knows(self, host: str) -> bool:
        """Whether a request is for this console and not for a name that leads here, too."""
        name = host.lower()
        if not name.endswith("]"):
            head, colon, port = name.rpartition(":")
            name = head if colon and port.isdigit() else name
        return name in self._hosts

    def viewer(self, request: Request) -> str | None:
        """Who looks, by the name that what he does is recorded under; None: he may not. Programs
        and proxies show the token, browsers that have logged in a cookie."""
        if not self._tokens.wanted:
            return self._unnamed
        shown = bearer(request.headers.get("authorization", "").encode("utf-8", "replace"))
        holder = self._holder(shown)
        if holder is None:
            holder = self._holder(_out_of(request.cookies.get(COOKIE, "")))
        elif self._user_header and (users := request.headers.getlist(self._user_header)):
            # Where there are two, one is from the browser.
            user = users[0].encode("latin-1").decode("utf-8", "replace").strip()
            return author(PROXY, user) if len(users) == 1 and user else None
        if holder is None:
            return None
        return author(TOKEN, holder) if holder else self._unnamed

    def is_token(self, shown: bytes) -> bool:
        """Whether it is a token of the console."""
        return self._holder(shown) is not None

    def _holder(self, shown: bytes) -> str | None:
        return self._tokens.holder(shown) if shown else None


class ConsoleApp:
    """The console as an ASGI function."""

    def __init__(self, console: Console, guard: Guard, over_tls: bool = False) -> None:
        """`over_tls`: whether a browser reaches it by HTTPS alone."""
        self._console, self._guard, self._over_tls = console, guard, over_tls
        self._channels = LivePages(console)
        self._forms = Forms(time.monotonic)
        self._acting = 0
        routes = [
            Route("/health", _health),
            Route("/static/{name}", _file),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/live", self._live),
            Route("/act/{kind}/{job}", self._act, methods=["GET", "POST"]),
            Route("/append/{job}", self._append, methods=["GET", "POST"]),
            Route("/jobs/{job}/upgrade", self._upgrade, methods=["GET", "POST"]),
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
        viewer = self._guard.viewer(request)
        if viewer is not None:
            request.scope[VIEWER] = viewer
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

    async def _act(self, request: Request) -> Response:
        """The page of an action, or what its form asks for."""
        actions, kind = self._console.actions, request.path_params["kind"]
        if actions is None or kind not in ACTIONS:
            return self._said(missing("nothing can be done here", WITHOUT_ACTIONS))
        who, job = request.scope[VIEWER], JobId(request.path_params["job"])
        try:
            if request.method == "POST":
                return await self._done(actions, request, who)
            view = await self._slowly(actions.page, kind, job, _query(request.url.query))
        except OnyxError as error:
            begun = request.method == "POST"
            return self._said(_refusal(error, f"/jobs/{quote(job, '')}", begun))
        form = self._forms.sealed(request, who)
        shown = msgspec.structs.replace(view, seal=form.seal, who=who)
        title = f"{view.action.verb} {view.name or view.id}"
        code = 409 if view.refused else 400 if view.problems else 200
        page = Page(title, "/", (PagePart("action", "action.html", shown),), code, is_live=False)
        return form.shown(self._said(page), self._over_tls)

    async def _done(self, actions: Actions, request: Request, who: str) -> Response:
        """Raises OnyxError."""
        kind, job = request.path_params["kind"], JobId(request.path_params["job"])
        fields = await read_form(request, ACT_BYTES_MAX, self._over_tls)
        self._forms.check(request, who, fields)
        position = await self._slowly(actions.do, kind, job, fields, who)
        return RedirectResponse(f"/jobs/{quote(job, '')}?done={position}", 303)

    async def _append(self, request: Request) -> Response:
        """The page that appends a segment, or what became of the one that its form has."""
        appends, who = self._console.appends, request.scope[VIEWER]
        if appends is None:
            return self._said(missing("nothing can be appended here", WITHOUT_ACTIONS))
        job = JobId(request.path_params["job"])
        try:
            if request.method == "POST":
                fields = await read_form(request, SEGMENT_BYTES_MAX, self._over_tls)
                self._forms.check(request, who, fields)
                view = await self._slowly(appends.send, job, fields, who)
            else:
                view = await self._slowly(appends.page, job)
        except OnyxError as error:
            return self._said(_refusal(error, f"/ask?job={quote(job, '')}", begun=False))
        form = self._forms.sealed(request, who)
        shown = msgspec.structs.replace(view, seal=form.seal, who=who)
        part, code = PagePart("append", "append.html", shown), 400 if view.problem else 200
        page = Page(f"{view.name} · append", "/ask", (part,), code, is_live=False)
        return form.shown(self._said(page), self._over_tls)

    async def _upgrade(self, request: Request) -> Response:
        """A manifest that is tried in the place of a job, which changes nothing."""
        job, text = JobId(request.path_params["job"]), None
        try:
            if request.method == "POST":
                fields = await read_form(request, MANIFEST_BYTES_MAX, self._over_tls)
                text = fields.get("file") or fields.get("manifest", "")
            return self._said(await self._slowly(self._console.upgrade, job, text))
        except OnyxError as error:
            return self._said(_refusal(error, "/", begun=False))

    async def _slowly(self, function: Callable[..., T], *args: Any) -> T:
        """What a function that may take long returns, on a thread.

        Raises:
            FormRefused: too many do.
        """
        if self._acting >= ACTING_MAX:
            raise FormRefused(f"{ACTING_MAX} others are at work: try again soon", 503)
        self._acting += 1
        try:
            found: T = await run_in_threadpool(function, *args)
            return found
        finally:
            self._acting -= 1

    def _said(self, page: Page) -> Response:
        return HTMLResponse(self._console.html(page), page.code)

    async def _login(self, request: Request) -> Response:
        shown = _query(request.url.query)  # in the address that `onyx console --actions` prints
        if request.method == "POST":
            body = await body_of(request, LOGIN_BYTES_MAX) or b""
            shown = _query(body.decode("utf-8", "replace"))
        token, wrong = shown.get("token", "").strip().encode(), "token" in shown
        if self._guard.is_token(token):
            answer, origin = RedirectResponse("/", 303), request.headers.get("origin", "")
            over_tls = self._over_tls or origin.startswith("https:")  # which may end at a proxy
            answer.set_cookie(
                COOKIE, token.hex(), httponly=True, samesite="strict", secure=over_tls
            )
            return answer
        text = templates().get_template("login.html").render(wrong=wrong)
        return HTMLResponse(text, 403 if wrong else 200)


def _refusal(error: OnyxError, back: str, begun: bool = True) -> Page:
    """The page that says why something was not done. `begun`: it may have been."""
    why = str(error)
    why = why if why.endswith("?") else f"{why}."
    if isinstance(error, UserError | JobRefused):
        code = error.code if isinstance(error, FormRefused) else 409
        return missing("this was not done", why, back, code)
    if begun:
        return missing("this may have been done, or not", f"{why} {UNSURE}", back, 503)
    return missing("this cannot be read", why, back, 503)


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
