"""Forms that are sent to the console: who may send one, what is in it, and that it counts once.

A browser shows its cookies whoever has it send a request, so they say who it is and not what he
wants. Three things do, of which each is enough by itself:

* the `Origin` of the request is the console's own address;
* the cookie of the form is `SameSite=Strict`, which a page of another site does not have sent;
* the form has a *seal*: a code (HMAC), by a key that only this process knows, over that cookie, who
  it was shown to and where it goes. It is good for an hour, and once: a form that is sent twice, by
  a double click or by a button of the browser, acts once.

Rejected: the seal a second time in a cookie, in place of a key: who can write cookies for a
neighbouring name makes both. A list of the forms that were shown: whoever loads pages would fill
it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from onyx.errors import UserError

SESSION = "onyx-console-form"
SEAL = "seal"
"""Name of the field that has it."""
SEAL_AGE_MAX_S = 3_600.0
SPENT_MAX = 10_000
FIELDS_MAX = 64
BODY_TIMEOUT_S = 30.0
URL_ENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})')
_NAME = re.compile(rb';\s*name="([^"]*)"')
AGAIN = "load its page again, look at what it says, and send it from there"


class FormRefused(UserError):
    """A form that does not count, and why."""

    def __init__(self, why: str, code: int = 403) -> None:
        super().__init__(why)
        self.code = code


class SealedForm(msgspec.Struct, frozen=True):
    """What a form is shown with."""

    seal: str
    session: str
    """The cookie of the form."""

    def shown(self, page: Response, over_tls: bool) -> Response:
        """The page that has the form, with its cookie."""
        page.set_cookie(SESSION, self.session, httponly=True, samesite="strict", secure=over_tls)
        return page


class Forms:
    """The seals of one process. For any thread."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._spent: OrderedDict[str, float] = OrderedDict()
        """Seals that have counted, with the times from which they are too old anyway."""

    def sealed(self, request: Request, who: str, path: str = "") -> SealedForm:
        """A form for who looks.

        Args:
            request: for the page that has the form.
            who: looks, by the name that what he does is recorded under.
            path: where the form goes; by default to the address of its page.
        """
        session = _session_of(request) or secrets.token_hex(16)
        head = f"{secrets.token_hex(8)}.{self._monotonic_s():.0f}"
        code = self._code(session, who, path or request.url.path, head)
        return SealedForm(f"{head}.{code}", session)

    def check(self, request: Request, who: str, fields: Mapping[str, str]) -> None:
        """Let a form count, which it does once.

        Raises:
            FormRefused: it was not shown to this person in this browser, or not lately, or has
                counted.
        """
        session = _session_of(request)
        head, _, code = fields.get(SEAL, "").rpartition(".")
        wanted = self._code(session, who, request.url.path, head).encode()
        if not session or not hmac.compare_digest(wanted, code.encode("utf-8", "replace")):
            raise FormRefused(f"this form was not shown to you by this console: {AGAIN}")
        ends_s = float(head.partition(".")[2]) + SEAL_AGE_MAX_S
        now_s = self._monotonic_s()
        with self._lock:
            while self._spent and next(iter(self._spent.values())) < now_s:
                self._spent.popitem(last=False)
            if now_s > ends_s:
                raise FormRefused(f"this form is old: {AGAIN}")
            if head in self._spent:
                raise FormRefused(f"this form was sent already: {AGAIN}", 409)
            if len(self._spent) >= SPENT_MAX:
                raise FormRefused("too many forms were sent within an hour", 503)
            self._spent[head] = now_s + SEAL_AGE_MAX_S

    def _code(self, session: str, who: str, path: str, head: str) -> str:
        text = json.dumps([session, who, path, head]).encode()
        return hmac.new(self._key, text, sha256).hexdigest()


async def read_form(request: Request, bytes_max: int, over_tls: bool) -> dict[str, str]:
    """The fields of a form that a page of this console has sent; of several of one name the last.
    A file is a field with its text.

    Raises:
        FormRefused: a page of another site may have sent it, it is too long, or it is no form.
    """
    if not _is_own(request.headers.get("origin", ""), request.headers.get("host", ""), over_tls):
        raise FormRefused(
            "this form did not come from a page of this console: its `Origin` is not the address "
            "that was asked (`Host`), which a proxy has to pass on as it is"
        )
    body = await body_of(request, bytes_max)
    if body is None:
        why = f"a form here has {bytes_max:,} bytes at most, and comes within {BODY_TIMEOUT_S:g} s"
        raise FormRefused(why, 413)
    kind = request.headers.get("content-type", "")
    media = kind.partition(";")[0].strip().lower()
    try:
        if media == URL_ENCODED:
            text = body.decode()
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
        if media == MULTIPART:
            return dict(_parts(kind, body))
    except ValueError as error:  # too many fields, or no UTF-8
        raise FormRefused(f"this form cannot be read: {error}", 400) from error
    raise FormRefused(f"a form is {URL_ENCODED} or {MULTIPART}", 415)


async def body_of(request: Request, bytes_max: int) -> bytes | None:
    """What was sent; None: more than that, or too slowly."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                found.extend(part)
                if len(found) > bytes_max:
                    return None
    except TimeoutError:
        return None
    return bytes(found)


def _parts(kind: str, body: bytes) -> Iterator[tuple[str, str]]:
    boundary = _BOUNDARY.search(kind)
    if boundary is None:
        raise ValueError("it names no boundary")
    parts = body.split(b"--" + boundary[1].encode("latin-1"))[1:-1]
    if len(parts) > FIELDS_MAX:
        raise ValueError(f"it has more than {FIELDS_MAX} fields")
    for part in parts:
        head, _, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None:
            yield name[1].decode(), content.removesuffix(b"\r\n").decode()


def _session_of(request: Request) -> str:
    """The cookie of forms that a browser shows, if it is one that the console makes."""
    found = request.cookies.get(SESSION, "")
    return found if len(found) == 32 and found.isalnum() and found.isascii() else ""


def _is_own(origin: str, host: str, over_tls: bool) -> bool:
    """Whether a page of this address has sent something. The scheme is known if TLS ends here."""
    scheme, _, name = origin.lower().partition("://")
    return name == host.lower() != "" and scheme in (("https",) if over_tls else ("http", "https"))
