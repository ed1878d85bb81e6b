"""The page that asks a running job: what a state of it holds, by key, beginning or range.

It asks as `onyx state` does, with the certificates and the token of the console, so who may look at
a console may see the states that it may. Nothing is followed: an answer is of the moment at which
it was asked for. What knows all kinds of states takes 20 MB, so it is imported with the first
question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode

import msgspec

from onyx.base.on_demand import ModuleOnDemand
from onyx.client.statuses import JobStatus
from onyx.console.board import Reporter
from onyx.errors import OnyxError
from onyx.model.job import Job

if TYPE_CHECKING:  # as above
    from onyx.client.window_view import Question, WindowView

Answerer: TypeAlias = "Callable[[Question, float], WindowView]"
"""Asks for a state, within so many seconds. Raises OnyxError."""
kinds = ModuleOnDemand("onyx.client.states.kinds")
views = ModuleOnDemand("onyx.client.window_view")
questions = ModuleOnDemand("onyx.codec.questions")
ROWS_MAX = 200
FIELD_CHARACTERS_MAX = 1_000
ANSWER_TIMEOUT_S = 5.0
ANSWER_PATIENCE_S = 7.0
"""How long a page waits; longer than the question is asked."""
FIELDS: Mapping[str, str] = {
    "key": "Key",
    "prefix": "Keys that begin with",
    "from-key": "From key",
    "to-key": "Before key",
    "from": "From time",
    "to": "Before time",
    "path": "Only what is there inside",
}
"""What can be asked, as options of `onyx state` are called, with what stands before it."""


class StateLink(msgspec.Struct, frozen=True):
    """A state that a job keeps."""

    name: str
    task: str
    kind: str
    url: str
    is_chosen: bool


class ExtentRow(msgspec.Struct, frozen=True):
    """What is kept of one key, and of one extent of time."""

    key: str
    lower: str
    upper: str
    session: str
    state: str


class AskPage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    job: str = ""
    job_name: str = ""
    state: str = ""
    asked: tuple[tuple[str, str, str], ...] = ()
    """Name of each field, what stands before it, and what was asked for."""
    states: tuple[StateLink, ...] = ()
    rows: tuple[ExtentRow, ...] = ()
    in_time: bool = False
    by_session_key: bool = False
    next: str = ""
    """Where the next page is."""
    trouble: str = ""
    """Why there is no answer."""
    is_answered: bool = False
    takes_requests: bool = False
    """Whether a segment can be appended to it from here."""


def ask_page(
    reporter: Reporter,
    answer: Answerer,
    status: JobStatus,
    manifest: Job,
    query: Mapping[str, str],
) -> AskPage:
    """The page for what an address asks of a job.

    Args:
        answer: asks for a state, within so many seconds.
    """
    job, name = status.id, query.get("state", "")[:FIELD_CHARACTERS_MAX]
    states = tuple(
        StateLink(each.name, each.task, each.kind, url_of(job, each.name), each.name == name)
        for each in kinds.states_of(manifest)
    )
    asked = {field: query.get(field, "")[:FIELD_CHARACTERS_MAX] for field in FIELDS}
    page = AskPage(
        job,
        status.name,
        name,
        tuple((field, words, asked[field]) for field, words in FIELDS.items()),
        states,
    )
    if not name:
        return page
    after = query.get("after", "")
    try:
        question = _question(status, name, asked, after)
        view = reporter.read(
            ("state", job, name, *asked.items(), after),
            lambda: answer(question, ANSWER_TIMEOUT_S),
            ANSWER_PATIENCE_S,
        )
    except OnyxError as error:
        return msgspec.structs.replace(page, trouble=str(error))
    return _answered(page, view, asked)


def url_of(job: str, state: str = "", asked: Mapping[str, str] | None = None) -> str:
    """Where a state of a job is asked for."""
    given = {"job": job, "state": state, **(asked or {})}
    return f"/ask?{urlencode({field: text for field, text in given.items() if text})}"


def _question(status: JobStatus, name: str, asked: Mapping[str, str], after: str) -> Question:
    given = {field: text.strip() or None for field, text in asked.items()}
    select = questions.selection(
        given["key"], given["prefix"], given["from-key"], given["to-key"],
        given["from"], given["to"], after or None, given["path"],
    )  # fmt: skip
    found: Question = views.Question(status.id, name, select, ROWS_MAX)
    return found


def _answered(page: AskPage, view: WindowView, asked: Mapping[str, str]) -> AskPage:
    rows = tuple(
        ExtentRow(
            views.shown(each.group),
            view.bound(each.lower),
            view.bound(each.upper),
            views.shown(each.session_key) if view.by_session_key else "",
            views.shown_state(each.state),
        )
        for each in view.extents
    )
    following = ""
    if view.next is not None:
        place = questions.encode_place(view.next)
        following = url_of(page.job, page.state, {**asked, "after": place})
    return msgspec.structs.replace(
        page,
        rows=rows,
        in_time=view.in_time,
        by_session_key=view.by_session_key,
        next=following,
        is_answered=True,
    )
