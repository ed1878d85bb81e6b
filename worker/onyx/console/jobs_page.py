"""The page of all jobs: which ones there are, how they are, and why; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from onyx.client.statuses import JobState, JobStatus, besides, why
from onyx.console.board import Board
from onyx.console.measured import JobFigures, job_figures
from onyx.console.words import Pagination

ROWS_MAX = 200
"""Jobs on one page: a browser lays out a thousand rows in seconds."""
Tone = Literal["good", "busy", "warn", "bad", "calm"]
TONES: Mapping[JobState, Tone] = {
    "running": "good",
    "draining": "busy",
    "paused": "busy",
    "waiting": "warn",
    "suspended": "calm",
    "completed": "calm",
    "failed": "bad",
    "killed": "bad",
    "unknown": "calm",
}
ORDER: Mapping[str, int] = {word: number for number, word in enumerate(
    ("stalled", "waiting", "running", "draining", "paused", "suspended", "failed", "killed",
     "completed", "unknown")
)}  # fmt: skip
SORTS = ("submitted", "name", "state")


class Filter(msgspec.Struct, frozen=True):
    """Which jobs are asked for, as the URL says."""

    text: str = ""
    """In the name or the id."""
    state: str = ""
    """A state, `stalled`, or `trouble`: all that need somebody."""
    sort: str = "submitted"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """What a URL asks for; what makes no sense is left out."""
        state, sort, page = query.get("state", ""), query.get("sort", ""), query.get("page", "")
        return cls(
            query.get("q", "").strip()[:200],
            state if state in (*ORDER, "trouble") else "",
            sort if sort in SORTS else SORTS[0],
            int(page) if page.isascii() and page.isdigit() and len(page) < 9 else 1,
        )

    def url(self, **more: object) -> str:
        """Where the same is shown with some things otherwise."""
        now = msgspec.structs.replace(self, **{"page": 1, **more})
        query = {"q": now.text, "state": now.state, "sort": now.sort, "page": now.page}
        default = {"q": "", "state": "", "sort": SORTS[0], "page": 1}
        found = {key: value for key, value in query.items() if value != default[key]}
        return "/" + (f"?{urlencode(found)}" if found else "")


class JobRow(msgspec.Struct, frozen=True):
    """A job in the list."""

    id: str
    name: str
    word: str
    """Its state; `stalled` of one that runs and does not advance."""
    tone: Tone
    why: str
    """Why it waits, stalls or was killed."""
    remarks: tuple[str, ...]
    """What became of segments that did not go on, and what is wrong with its code."""
    peers: int
    engine: str
    age_ms: int | None
    by: str
    figures: JobFigures
    needs_somebody: bool


class StateChoice(msgspec.Struct, frozen=True):
    """A filter that can be chosen."""

    word: str
    count: int
    url: str
    chosen: bool
    tone: Tone


class JobsPage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    rows: tuple[JobRow, ...]
    choices: tuple[StateChoice, ...]
    filter: Filter
    pages: Pagination
    known: int
    """Jobs in all, whatever is asked for."""
    workers: int
    peers: int
    free: int
    is_measured: bool
    """Whether some worker has said what it measures."""

    @property
    def urls(self) -> tuple[str, str]:
        """Where the pages before and behind are; empty: there is none."""
        at = self.pages.number
        before = self.filter.url(page=at - 1) if at > 1 else ""
        return before, self.filter.url(page=at + 1) if at < self.pages.last else ""


def jobs_page(board: Board, asked: Filter) -> JobsPage:
    """The page for what is asked for."""
    rows = [row_of(board, each) for each in board.jobs]
    matching = [each for each in rows if _matches(each, asked.text.lower())]
    shown = [each for each in matching if _in_state(each, asked.state)]
    shown.sort(key=_key(asked.sort))
    pages = Pagination.of(len(shown), asked.page, ROWS_MAX)
    replica = board.replica
    busy = sum(len(p) for job in replica.jobs for p in replica.run(job).allocation.values())
    return JobsPage(
        tuple(shown[pages.first_row : pages.first_row + ROWS_MAX]),
        tuple(_choices(matching, asked)),
        asked,
        pages,
        len(rows),
        len(replica.groups),
        len(replica.peers),
        len(replica.peers) - busy,
        bool(board.measured.jobs),
    )


def word_of(status: JobStatus) -> tuple[str, Tone]:
    """The state of a job in one word, and how bad it is."""
    if status.stalled and status.state in ("running", "draining"):
        return "stalled", "bad"
    return status.state, TONES[status.state]


def row_of(board: Board, status: JobStatus) -> JobRow:
    """A job in the list."""
    word, tone = word_of(status)
    begun = board.beginnings.get(status.id)
    remarks = tuple(each for each in besides(status) if each)
    return JobRow(
        status.id,
        status.name,
        word,
        tone,
        why(status),
        remarks,
        status.peers,
        status.engine,
        board.now_ms - begun.at_ms if begun is not None and begun.at_ms else None,
        "" if begun is None else begun.by,
        job_figures(board.measured, status.id),
        tone in ("bad", "warn") or bool(status.outcomes or status.code_warning),
    )


def _matches(row: JobRow, text: str) -> bool:
    return text in row.name.lower() or text in row.id.lower()


def _in_state(row: JobRow, state: str) -> bool:
    return not state or row.word == state or (state == "trouble" and row.needs_somebody)


def _key(sort: str) -> Callable[[JobRow], Any]:
    if sort == "name":
        return lambda row: (row.name, row.id)
    if sort == "state":
        return lambda row: ORDER[row.word]
    return lambda row: row.age_ms if row.age_ms is not None else float("inf")


def _choices(rows: list[JobRow], asked: Filter) -> list[StateChoice]:
    """Each state that some job has, with how many."""
    counts: dict[str, tuple[int, Tone]] = {}
    for row in rows:
        counts[row.word] = (counts.get(row.word, (0, row.tone))[0] + 1, row.tone)
    trouble = sum(row.needs_somebody for row in rows)
    found = [StateChoice("all", len(rows), asked.url(state=""), not asked.state, "calm")]
    if trouble or asked.state == "trouble":
        url = asked.url(state="trouble")
        found.append(StateChoice("trouble", trouble, url, asked.state == "trouble", "bad"))
    for word in ORDER:
        if word in counts or asked.state == word:
            count, tone = counts.get(word, (0, "calm"))
            found.append(StateChoice(word, count, asked.url(state=word), asked.state == word, tone))
    return found
