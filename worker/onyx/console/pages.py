"""Pages as HTML: which templates show which views, whole or in the parts that change.

A page is a frame and *parts*, each a template with its view. What is live sends a part again when
its text has changed, so a page that is loaded and one that was followed are the same text. Jinja
escapes all that templates show; only parts that it has made itself are put into the frame as they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from onyx import __version__
from onyx.client.reader import FORGOTTEN, JobReader
from onyx.client.statuses import JobStatus
from onyx.console import words
from onyx.console.actions import Actions, actions_of
from onyx.console.append_page import SegmentAppends, inputs_of
from onyx.console.ask_page import Answerer, AskPage, ask_page
from onyx.console.board import SLOW, Board, Past, Reporter, change_at
from onyx.console.cluster_page import cluster_page
from onyx.console.entries import called, concerns, history_of
from onyx.console.job_page import (
    DifferenceLine,
    difference,
    job_page,
    manifest_text,
    version_before,
)
from onyx.console.jobs_page import Filter, jobs_page
from onyx.console.task_page import WorkerPage, peer_page, task_page, worker_page
from onyx.console.time_page import time_page, url_at
from onyx.console.upgrade_page import upgrade_page, upgrade_tried
from onyx.errors import OnyxError
from onyx.history.replicas import Change
from onyx.ids import JobId, Position
from onyx.model.job import Job
from onyx.replica.jobs import jobs_called
from onyx.reports.measures import WorkerDiagnostics

HERE = Path(__file__).parent
HISTORY_MAX = 200
"""Entries whose events are on the page of a job."""
NOT_THERE, UNREADABLE_NOW = 404, 503
"""A page that cannot be read now is followed: it may be readable soon."""
ARCHIVE_PATIENCE_S = 10.0
"""How long the page of an entry waits that is read from the log or its archive."""
NAVIGATION = (("/", "Jobs"), ("/cluster", "Cluster"), ("/time", "Time"), ("/ask", "Ask"))


class PagePart(msgspec.Struct, frozen=True):
    """A part of a page."""

    id: str
    template: str
    view: Any


class Page(msgspec.Struct, frozen=True):
    """A page before it is text."""

    title: str
    section: str
    """Which entry of the navigation it belongs to."""
    parts: tuple[PagePart, ...]
    code: int = 200
    is_live: bool = True


class Console:
    """What pages are made of, for any thread.

    Args:
        client: reads what is beside the log.
        past: the log.
        reporter: reads for all viewers at once.
        tenancy: whose log it is.
        answer: asks for a state of a job, as `ask_page` does.
        actions: does what is asked for; None: the console only shows.
        appends: hands segments to jobs, where there are actions.
        said: what workers have logged and counted, where that was kept.
    """

    def __init__(
        self,
        client: JobReader,
        past: Past,
        reporter: Reporter,
        tenancy: str,
        now_ms: Callable[[], int],
        answer: Answerer,
        actions: Actions | None = None,
        appends: SegmentAppends | None = None,
        said: Mapping[str, WorkerDiagnostics] = MappingProxyType({}),
    ) -> None:
        self.actions, self.appends = actions, appends
        self._client, self._past, self._reporter = client, past, reporter
        self._answer, self._workers_said = answer, said
        self._now_ms = now_ms
        self.tenancy = tenancy

    def page(self, path: str, query: Mapping[str, str]) -> Page:
        """The page at an address."""
        board = self._reporter.board()
        try:
            found = self._find(board, path, query)
        except OnyxError as error:  # ZooKeeper or the archive is away, or something is damaged
            found = missing("this cannot be read", str(error), code=UNREADABLE_NOW)
        if found.code == NOT_THERE and not board.now_ms:  # which nobody knows yet
            found = missing("this is not known yet", SLOW, code=UNREADABLE_NOW)
        trouble = PagePart("trouble", "trouble.html", board)
        return msgspec.structs.replace(found, parts=(trouble, *found.parts))

    def upgrade(self, job: JobId, text: str | None = None) -> Page:
        """What a manifest in the place of a job would do; None: the page to write one on.

        Raises:
            OnyxError: there is no such job, or its manifest cannot be read.
        """
        client, replica = self._client, self._past.replica
        if text is None:
            view = upgrade_page(client, replica, job)
        else:
            view = upgrade_tried(client, replica, job, text)
        part, title = PagePart("upgrade", "upgrade.html", view), f"{view.name} · upgrade"
        return Page(title, "/", (part,), 400 if view.problems else 200, is_live=False)

    def html(self, page: Page) -> str:
        """A whole page."""
        made = (Markup(text) for text in self.texts(page))  # noqa: S704 (each escaped by its template)
        parts = [(each.id, text) for each, text in zip(page.parts, made, strict=True)]
        frame = templates().get_template("frame.html")
        text: str = frame.render(
            page=page,
            tenancy=self.tenancy,
            version=__version__,
            navigation=NAVIGATION,
            parts=parts,
        )
        return text

    def texts(self, page: Page) -> list[str]:
        """The text of each part."""
        now_ms = self._now_ms()
        return [
            templates().get_template(each.template).render(v=each.view, now_ms=now_ms)
            for each in page.parts
        ]

    def _find(self, board: Board, path: str, query: Mapping[str, str]) -> Page:
        if path == "/":
            view = jobs_page(board, Filter.of(query))
            return Page("Jobs", "/", (PagePart("jobs", "jobs.html", view),))
        if path == "/cluster":
            return Page(
                "Cluster",
                path,
                (PagePart("cluster", "cluster.html", cluster_page(board, self._past.replica_at)),),
            )
        if path == "/time":
            return self._time(board, query)
        if path == "/ask":
            return self._ask(board, query)
        _, section, head, *rest = (*path.split("/"), "", "")
        if section == "jobs" and head:
            return self._of_job(board, head, "/".join(rest).strip("/"), query.get("done", ""))
        if section == "workers" and not any(rest):
            return self._of_worker(
                worker_page(board, head, self._workers_said.get(head)), "worker", head
            )
        if section == "peers" and not any(rest):
            return self._of_worker(peer_page(board, head), "peer", head)
        return missing("there is no page here", "The addresses of pages are in the navigation.")

    def _time(self, board: Board, query: Mapping[str, str]) -> Page:
        changes, asked = self._past.changes(), query.get("at", "")
        job = query.get("job", "")[:128]
        names = {str(each.id): each.name for each in board.jobs}
        if not changes:
            return missing("the log is empty", "Nothing has happened yet, or all was trimmed.")
        of_job = (each for each in reversed(changes) if job and concerns(each, JobId(job)))
        shown = self._change(asked) if asked else next(of_job, changes[-1])
        if shown is None:
            why = f"The log has no entry {asked[:20]!r}, or it was trimmed and is in no archive."
            return missing("no such entry", why, "/time")
        view = time_page(changes, shown, job, names)
        return Page(
            f"Entry {view.at}", "/time", (PagePart("time", "time.html", view),), is_live=not asked
        )

    def _change(self, asked: str) -> Change | None:
        if not (asked.isascii() and asked.isdigit() and len(asked) < 18):
            return None
        at = Position(int(asked))
        return self._reporter.read(
            ("change", at), lambda: change_at(self._past, self._client, at), ARCHIVE_PATIENCE_S
        )

    def _of_worker(self, view: WorkerPage | None, what: str, id: str) -> Page:
        if view is None:
            why = f"No {what} that is here is called {id[:128]}."
            return missing(f"no such {what}", why, "/cluster")
        title = f"{what.capitalize()} {words.short(id)}"
        return Page(title, "/cluster", (PagePart("worker", "worker.html", view),))

    def _ask(self, board: Board, query: Mapping[str, str]) -> Page:
        text, view = query.get("job", ""), AskPage()
        if text:
            status = _named(board, text)
            if status is None:
                return _no_job(text, "/ask")
            manifest, unreadable = self._manifest(board, status)
            if manifest is None:
                return missing("this cannot be asked", unreadable or FORGOTTEN, "/ask")
            view = ask_page(self._reporter, self._answer, status, manifest, query)
            can_append = self.appends is not None and bool(inputs_of(manifest))
            view = msgspec.structs.replace(view, takes_requests=can_append)
        return Page("Ask", "/ask", (PagePart("ask", "ask.html", view),), is_live=False)

    def _of_job(self, board: Board, text: str, rest: str, done: str) -> Page:
        status = _named(board, text)
        if status is None:
            return _no_job(text)
        manifest, unreadable = self._manifest(board, status)
        title = f"{status.name or status.id} · {rest or 'job'}"
        if rest == "manifest":
            shown = PagePart(
                "manifest", "manifest.html", self._manifest_page(board, status, unreadable)
            )
            return Page(title, "/", (shown,), is_live=False)
        if rest:
            task = rest.removeprefix("tasks/")
            of_task = (
                task_page(board, status, manifest, task) if manifest and task != rest else None
            )
            if of_task is None:
                return missing("no such page", unreadable or f"The job has no task {task[:128]}.")
            return Page(title, "/", (PagePart("task", "task.html", of_task),))
        completed: Mapping[str, int] = {}
        if manifest is not None and status.id in board.replica.jobs:
            completed = self._reporter.completed(manifest, status.id)
        its = history_of(self._past.changes(), status.id, HISTORY_MAX)
        view = job_page(board, status, manifest, its, completed)
        if unreadable:
            view = msgspec.structs.replace(view, unreadable=unreadable)
        parts = [PagePart("head", "job_head.html", view)]
        if self.actions is not None:
            acts = actions_of(self._past.replica, status.id, its, done)
            parts.append(PagePart("acts", "job_actions.html", acts))
        parts += [
            PagePart("graph", "job_graph.html", view),
            PagePart("tasks", "job_tasks.html", view),
            PagePart("past", "job_past.html", view),
        ]
        return Page(title, "/", tuple(parts))

    def _manifest(self, board: Board, status: JobStatus) -> tuple[Job | None, str]:
        digest = board.replica.digest_of(status.id)
        if digest is None:
            return None, ""
        try:
            manifests = self._reporter.manifests
            found = self._reporter.read(("job", digest), lambda: manifests.job(digest, status.id))
            return found, ""
        except OnyxError as error:
            return None, f"its manifest cannot be read: {error}"

    def _manifest_page(self, board: Board, status: JobStatus, unreadable: str) -> ManifestPage:
        digest = board.replica.digest_of(status.id)
        before = version_before(board.replica, board, status)
        old = None if before is None else board.replica.digest_of(before)
        text, changed = "", tuple[DifferenceLine, ...]()
        try:
            if digest is not None:
                text = self._text(digest, status.id)
            if old is not None:
                changed = difference(self._text(old, before or ""), text)
        except OnyxError as error:
            unreadable = unreadable or f"it cannot be read: {error}"
        return ManifestPage(status.id, status.name, text, before or "", changed, unreadable)

    def _text(self, digest: str, job: str) -> str:
        """A manifest as YAML. Raises as `Reporter.read`, and `manifest_text`."""
        manifests = self._reporter.manifests
        return manifest_text(
            self._reporter.read(("text", digest), lambda: manifests.text(digest)), job
        )


def _named(board: Board, text: str) -> JobStatus | None:
    """The job with an id, the beginning of one, or a name."""
    names = {str(each.id): each.name for each in board.jobs}
    found = jobs_called(board.replica, text, lambda each: names.get(each, ""))
    return board.status(found[0]) if len(found) == 1 else None


def _no_job(text: str, back: str = "/") -> Page:
    return missing("no such job", f"No job is called {text[:128]}, or more than one.", back)


class ManifestPage(msgspec.Struct, frozen=True):
    """The manifest of a job, and how it differs from the version before."""

    id: str
    name: str
    text: str
    before: str
    """The job with the version before."""
    difference: tuple[DifferenceLine, ...]
    unreadable: str


class MissingPage(msgspec.Struct, frozen=True):
    """Something that is not there."""

    what: str
    why: str
    back: str


def missing(what: str, why: str, back: str = "/", code: int = NOT_THERE) -> Page:
    """The page that says so."""
    view = MissingPage(what, why, back)
    parts = (PagePart("missing", "missing.html", view),)
    return Page(what.capitalize(), "", parts, code, is_live=code == UNREADABLE_NOW)


@cache
def templates() -> Environment:
    """The templates, which are read once."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    names = ("age", "count", "rate", "size", "instant", "iso", "short", "some", "listed")
    found.filters.update({name: getattr(words, name) for name in names})
    found.globals.update(url_at=url_at, called=called)
    return found
