"""Questions about states over HTTP: `GET /jobs/JOB/state` and `GET /jobs/JOB/state/WINDOW`.

They are about any job, so the tokens that open them are those of the worker. Without a file of
tokens no state is shown to anybody.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from onyx.codec.questions import selection
from onyx.errors import StateError, Unavailable, UserError
from onyx.gateway.request_head import (
    caller_of,
    headers_of,
    parameters_of,
    raise_refusal,
    timeout_of,
)
from onyx.keystate.selection import Selection
from onyx.requests.request import NOBODY, Caller
from onyx.requests.tokens import Tokens
from onyx.serving.replies import Rejected, Reply, after

EXTENTS_DEFAULT = 1_000
EXTENTS_MAX = 10_000
"""Extents of a page: it is in the memory of the worker that was asked."""
AGAIN_S = 1.0
TIMEOUT_S = 10.0
WHAT = "a state"
PATH = "GET /jobs/JOB/state/WINDOW"
_LIMIT = re.compile(r"[1-9][0-9]{0,8}")
_SELECTING = {
    "key": "key", "prefix": "prefix", "from-key": "first_key", "to-key": "before_key",
    "from": "time_from", "to": "time_to", "after": "after", "path": "path",
    "from-item": "first_item", "to-item": "before_item", "items": "items",
}  # fmt: skip


class StateForm(StrEnum):
    """Content types of an answer."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    ARROW = "application/vnd.apache.arrow.stream"


class AskedState(msgspec.Struct, frozen=True):
    """A question."""

    job: str
    """Id."""
    state: str
    """Empty: which states there are."""
    select: Selection
    extents_max: int
    durable: bool
    timeout_s: float
    form: StateForm
    caller: Caller = NOBODY


class ShownState(msgspec.Struct, frozen=True):
    """An answer."""

    body: bytes
    next: str = ""
    """What the next page is `after`; empty: there is none."""


class StateService(Protocol):
    """Who answers questions about states, on the event loop of the gateway."""

    async def answer(self, asked: AskedState) -> ShownState:
        """The answer.

        Raises:
            UserError: the question makes no sense, or nobody can answer it.
            Unavailable: nobody can answer now.
        """
        ...


class StateQuestions:
    """Answers HTTP requests for states."""

    def __init__(self, states: StateService | None, tokens: Tokens) -> None:
        """`states`: None where no state is shown."""
        self._states = states
        self._tokens = tokens

    async def reply(self, scope: Mapping[str, Any], what: tuple[str, str]) -> Reply:
        """The reply to a request for a state: id of the job, and name. Raises Rejected."""
        if self._states is None or not self._tokens.wanted:
            why = "this worker shows no states: they need ONYX_STATE_TOKEN_FILE"
            raise Rejected(404, why)
        if scope["method"] != "GET":
            raise Rejected(405, PATH, {"Allow": "GET"})
        headers = headers_of(scope["headers"])
        caller = caller_of(headers)
        raise_refusal(self._tokens.refusal(caller.token, WHAT), caller.token)
        try:
            asked = _asked(what, scope["query_string"], headers, caller)
        except UserError as error:
            raise Rejected(400, str(error)) from error
        shown = await _answered(self._states, asked)
        more = {"Onyx-Next": shown.next} if shown.next else {}
        return Reply(200, shown.body, more, asked.form)


async def _answered(states: StateService, asked: AskedState) -> ShownState:
    try:
        async with asyncio.timeout(asked.timeout_s):
            return await states.answer(asked)
    except (UserError, StateError) as error:
        raise Rejected(400, str(error)) from error
    except Unavailable as error:
        raise Rejected(503, str(error), after(AGAIN_S)) from error
    except TimeoutError as error:
        what = f"there was no answer within {asked.timeout_s:g} s"
        raise Rejected(504, what, after(AGAIN_S)) from error


def state_of(scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """The job and the state that a request is for, empty for their list; None: it is for none."""
    parts = scope["raw_path"].decode("ascii", "replace").split("/")
    asks = len(parts) in (4, 5) and parts[:2] == ["", "jobs"] and parts[3] == "state"
    # An input may be called so: it gets POST, to a path with no more behind it.
    if not asks or (scope["method"] == "POST" and len(parts) == 4):
        return None
    return unquote(parts[2]), unquote(parts[4]) if len(parts) == 5 else ""


def _asked(
    what: tuple[str, str], query: bytes, headers: Mapping[bytes, bytes], caller: Caller
) -> AskedState:
    given = dict(parameters_of(query))
    select = selection(
        **{_SELECTING[name]: given.pop(name) for name in _SELECTING if name in given}
    )
    limit, durable = given.pop("limit", str(EXTENTS_DEFAULT)), given.pop("durable", "false")
    timeout_s = timeout_of(given.pop("timeout")) if "timeout" in given else TIMEOUT_S
    if given:
        known = ", ".join([*_SELECTING, "limit", "durable", "timeout"])
        raise Rejected(400, f"there is no parameter {next(iter(given))!r}, only {known}")
    if not _LIMIT.fullmatch(limit) or int(limit) > EXTENTS_MAX:
        raise Rejected(400, f"limit is a number of extents up to {EXTENTS_MAX}")
    if durable not in ("true", "false"):
        raise Rejected(400, "durable is true or false")
    form = _form(headers.get(b"accept", b""))
    job, state = what
    return AskedState(job, state, select, int(limit), durable == "true", timeout_s, form, caller)


def _form(accept: bytes) -> StateForm:
    """The first type that a client names and that there is; JSON if it names none."""
    for each in accept.lower().split(b","):
        kind = each.split(b";")[0].strip().decode("latin-1")
        if kind in ("", "*/*", "application/*"):
            return StateForm.JSON
        if kind in list(StateForm):
            return StateForm(kind)
    raise Rejected(406, f"an answer is one of {', '.join(StateForm)}")
