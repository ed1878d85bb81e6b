"""The page of time: the cluster as it was after any entry of the log, what the entry changed, and
who wrote it; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import msgspec

from onyx.console.entries import Kind, concerns, kind_of, members, said
from onyx.history.replicas import Change
from onyx.ids import JobId
from onyx.replica import canonical
from onyx.replica.job_events import JobEvent
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.replica.story import events_of, proposer

TICKS_MAX = 120
"""Columns of the picture of the log."""
AROUND = 12
"""Entries that are listed before and behind the one that is shown."""
JOBS_MAX = 200
ARGUMENTS_CHARACTERS_MAX = 20_000
TICK_WIDTH, PICTURE_HEIGHT = 8, 64
KINDS: tuple[Kind, ...] = ("job", "member", "task")


class EntryRow(msgspec.Struct, frozen=True):
    """An entry in the list."""

    position: int
    at_ms: int
    kind: Kind
    name: str
    said: str
    by: str
    url: str
    is_shown: bool


class Tick(msgspec.Struct, frozen=True):
    """A column of the picture: some entries in a row."""

    x: int
    bars: tuple[tuple[Kind, int, int], ...]
    """Kind, top and height."""
    title: str
    url: str
    is_shown: bool


class JobThen(msgspec.Struct, frozen=True):
    """A job as it was."""

    id: str
    name: str
    word: str
    peers: int
    tasks: str
    is_touched: bool


class TimePage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    first: int
    last: int
    at: int
    job: str
    """Only entries that concern it, if there is one."""
    job_name: str
    entry: EntryRow | None
    arguments: str
    parent: str
    """Where the entry is in reaction to which this one was written."""
    changes: tuple[JobEvent, ...]
    members: tuple[str, ...]
    """What it changed of who is there."""
    around: tuple[EntryRow, ...]
    ticks: tuple[Tick, ...]
    jobs: tuple[JobThen, ...]
    more_jobs: int
    groups: int
    peers: int
    digest: str
    before: str
    behind: str
    is_newest: bool
    names: Mapping[str, str]
    """The names of jobs by their ids."""

    @property
    def width(self) -> int:
        """How wide the picture is."""
        return max(len(self.ticks), 1) * TICK_WIDTH

    height: int = PICTURE_HEIGHT


def time_page(
    changes: Sequence[Change], shown: Change, job: str, names: Mapping[str, str]
) -> TimePage:
    """The page after the entry of a change.

    Args:
        changes: all that are kept.
        shown: may be older than these.
        job: whose entries are listed and stepped through; empty: all.
        names: the names of jobs.
    """
    at = shown.new.version
    listed = [each for each in changes if not job or concerns(each, JobId(job))]
    positions = [each.entry.position for each in listed]
    before = max((each for each in positions if each < at), default=None)
    behind = min((each for each in positions if each > at), default=None)
    first = changes[0].entry.position if changes else at
    last = changes[-1].entry.position if changes else at
    here = next((n for n, each in enumerate(positions) if each >= at), len(positions))
    around = listed[max(0, here - AROUND) : here + AROUND + 1]
    then = _jobs(shown, names)
    return TimePage(
        first=min(first, at),
        last=last,
        at=at,
        job=job,
        job_name=names.get(job, ""),
        entry=_row(shown, at, job, names),
        arguments=_arguments(shown),
        parent=_parent(shown, job),
        changes=tuple(events_of(*shown, lambda _: True)),
        members=tuple(members(shown)),
        around=tuple(row for each in reversed(around) if (row := _row(each, at, job, names))),
        ticks=_ticks(listed, at, job),
        jobs=tuple(then[:JOBS_MAX]),
        more_jobs=max(0, len(then) - JOBS_MAX),
        groups=len(shown.new.groups),
        peers=len(shown.new.peers),
        digest=canonical.digest(shown.new),
        before=url_at(before, job) if before is not None else "",
        behind=url_at(behind, job) if behind is not None else "",
        is_newest=at == last,
        names=names,
    )


def url_at(position: int, job: str = "") -> str:
    """Where an entry is shown."""
    query = {"at": str(position), **({"job": job} if job else {})}
    return f"/time?{urlencode(query)}"


def _row(change: Change, at: int, job: str, names: Mapping[str, str]) -> EntryRow | None:
    entry = change.entry
    if entry is None:
        return None
    command = entry.command
    return EntryRow(
        entry.position,
        entry.at_ms,
        kind_of(command),
        command.NAME,
        said(command, names),
        proposer(entry),
        url_at(entry.position, job),
        entry.position == at,
    )


def _arguments(change: Change) -> str:
    if change.entry is None:
        return ""
    plain = msgspec.to_builtins(change.entry.command)
    text = json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)
    if len(text) > ARGUMENTS_CHARACTERS_MAX:
        text = f"{text[:ARGUMENTS_CHARACTERS_MAX]}\n... (it is longer: see `onyx log`)"
    return text


def _parent(change: Change, job: str) -> str:
    if change.entry is None or change.entry.parent is None:
        return ""
    return url_at(change.entry.parent, job)


def _ticks(changes: Sequence[Change], at: int, job: str) -> tuple[Tick, ...]:
    """The log as columns of equally many entries, each as high as it has entries of a kind."""
    if not changes:
        return ()
    each_has = -(-len(changes) // TICKS_MAX)
    pieces = [changes[n : n + each_has] for n in range(0, len(changes), each_has)]
    return tuple(_tick(number, piece, each_has, at, job) for number, piece in enumerate(pieces))


def _tick(number: int, piece: Sequence[Change], most: int, at: int, job: str) -> Tick:
    counts = dict.fromkeys(KINDS, 0)
    for each in piece:
        if each.entry is not None:
            counts[kind_of(each.entry.command)] += 1
    bars, bottom = [], PICTURE_HEIGHT
    for kind, count in counts.items():
        height = round(count / most * (PICTURE_HEIGHT - 4)) if most > 1 else 24 * count
        if height:
            bottom -= height
            bars.append((kind, bottom, height))
    first, last = piece[0].entry.position, piece[-1].entry.position
    what = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    title = f"{first}" if first == last else f"{first} to {last}"
    is_shown = first <= at <= last
    return Tick(
        number * TICK_WIDTH, tuple(bars), f"entries {title}: {what}", url_at(last, job), is_shown
    )


def _jobs(change: Change, names: Mapping[str, str]) -> list[JobThen]:
    """Jobs after an entry: those that it touched, those that run, the last ones that ended."""
    replica = change.new
    known = [*replica.jobs, *reversed(replica.completed_jobs), *reversed(replica.killed_jobs)]
    found = [_job(change, job, names.get(job, "")) for job in known if job in replica.records]
    return sorted(found, key=lambda each: not each.is_touched)


def _job(change: Change, job: JobId, name: str) -> JobThen:
    replica = change.new
    run = replica.run(job)
    parts = [
        f"{task} {len(run.allocation[task])}"
        for task in replica.tasks_of(job)
        if run.allocation.get(task)
    ]
    peers = sum(map(len, run.allocation.values()))
    word, tasks = word_then(replica, job), ", ".join(parts)
    return JobThen(job, name, word, peers, tasks, concerns(change, job))


def word_then(replica: Replica, job: JobId) -> str:
    """The state of a job as the log alone says it."""
    completed = has_completed(replica, job)
    if completed is not None:
        return "completed" if completed else "killed"
    run = replica.run(job)
    for word, holds in (
        ("suspended", run.suspended),
        ("draining", run.draining),
        ("paused", run.is_paused),
        ("running", run.is_ready),
        ("starting", bool(run.allocation) and any(run.allocation.values())),
    ):
        if holds:
            return word
    return "waiting"
