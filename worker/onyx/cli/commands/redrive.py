"""`onyx redrive`: dead letters go into a running job again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JobArgument, JsonOption, LogPlace, TokenPlace
from onyx.client.appender import Appender
from onyx.client.appending import addresses_of
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.redrive.elsewhere import place_of_output
from onyx.client.redrive.letters import LetterChoice, LetterFolder, LetterPlace, moment_ms
from onyx.client.redrive.marks import RedriveMarks
from onyx.client.redrive.redrive import CUT, ROUNDS_MAX, Limits, Redrive, RedriveSummary, Target
from onyx.client.redrive.ways import place_of_letters, way_in
from onyx.errors import UserError
from onyx.flow.segment import Segment
from onyx.ids import JobId
from onyx.log.acts import audit, user_of_process
from onyx.model.job import CatalogEntry, Job
from onyx.model.keys.durations import split
from onyx.replica.jobs import in_place_of
from onyx.requests.content import Refused, parts_of
from onyx.requests.request import TIMEOUT_S, TIMEOUT_S_MAX, Level
from onyx.settings import Settings
from onyx.storage.opening import absolute, location_of

PROGRESS_S = 1.0
SHOWN_MAX = 20
"""Errors that people see; JSON has all."""
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}

TaskArgument = Annotated[str, Argument("The task in which the segments have failed.")]
LettersOption = Annotated[
    str | None,
    Option(
        "--from",
        "Folder, bucket (s3://...) or file with the letters, of whichever job; without it the "
        "output that deadLetter names, and letters of this job and those that it upgraded.",
        metavar="PLACE",
    ),
]
IntoOption = Annotated[
    str, Option("--into", "The input that takes them; without it the one that leads to the task.")
]
ErrorOption = Annotated[
    str, Option("--error", "Only letters with this text in type and message of the error.")
]
IdsOption = Annotated[
    list[str] | None, Option("--id", "Only the letter with this id; may be given several times.")
]
SinceOption = Annotated[
    str, Option("--since", "Only what has failed since: a time in ISO 8601, or `2 hours` ago.")
]
UntilOption = Annotated[str, Option("--until", "Only what had failed before, likewise.")]
FirstOption = Annotated[
    int | None, Meta(ge=1), Option("--first", "So many letters at most, in the order of parts.")
]
TriesOption = Annotated[
    int,
    Meta(ge=1, le=255),
    Option("--tries-max", "Leave segments that went in so often already."),
]
AgainOption = Annotated[
    bool, Option("--again", "Letters that were redriven before go in once more.")
]
AckOption = Annotated[
    Literal["ack", "journal"],
    Option(
        "--ack",
        "When to go on: `ack`, all that follows is durable in all outputs; `journal`, the job "
        "will process them.",
    ),
]
TimeoutOption = Annotated[
    float,
    Meta(ge=0.001, le=TIMEOUT_S_MAX),
    Option("--timeout", "Seconds to wait for an answer about 2,000 letters."),
]
MarksOption = Annotated[
    str | None,
    Option(
        "--marks",
        "Where it is kept which letters went in, if that may not be written beside them.",
        metavar="PLACE",
    ),
]
DryRunOption = Annotated[
    bool, Option("--dry-run", "Only say what would be done: how many letters, by error.")
]
HistoryOption = Annotated[
    bool, Option("--history", "Print who has redriven letters of this place, and what became.")
]


def redrive(
    job: JobArgument,
    task: TaskArgument,
    letters: LettersOption = None,
    into: IntoOption = "",
    error: ErrorOption = "",
    id: IdsOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    first: FirstOption = None,
    tries_max: TriesOption = ROUNDS_MAX,
    again: AgainOption = False,
    ack: AckOption = "ack",
    timeout: TimeoutOption = 10 * TIMEOUT_S,
    marks: MarksOption = None,
    dry_run: DryRunOption = False,
    history: HistoryOption = False,
    token: TokenPlace = TokenPlace(),
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Put dead letters of a task into a running job again, each once.

    Segments go in at the task where they have failed, by an input that takes requests and leads
    there alone. Called again, killed in the middle or by two people at once, it puts each letter in
    once: marks beside the letters say which. What fails again is a new letter. The exit code is 1
    if segments have failed and no letter has them.
    """
    found = token.of(place.settings())
    times = _moment(since, "--since"), _moment(until, "--until")
    choice = LetterChoice(task, None, error, *times, frozenset(id or ()), bool(into))
    way = _Way(letters, into, marks, Level(ack), timeout)
    with connect(found) as client:
        if history:
            found_at, kept = _place(client.job(client.named(job)), choice, way, found)
            found_at.close()
            _print_history(kept, as_json)
        else:
            limits = Limits(first, tries_max, again)
            _redrive(client, found, job, choice, limits, way, dry_run, as_json)


class _Way(NamedTuple):
    """Where letters and their marks are, and how they go in."""

    letters: str | None
    into: str
    marks: str | None
    ack: Level
    timeout_s: float


def _redrive(
    client: Client,
    found: Settings,
    text: str,
    choice: LetterChoice,
    limits: Limits,
    way: _Way,
    dry_run: bool,
    as_json: bool,
) -> None:
    job_id, job, versions = _running(client, text, must_run=not dry_run)
    place, marks = _place(job, choice, way, found)
    entry = way_in(job, choice.task, way.into)
    if way.letters is None:
        choice = replace(choice, jobs=versions)
    target, by = _target(job, entry, job_id, versions, way), user_of_process()
    doing = Redrive(place, marks, choice, limits, target, SystemClock(), by)
    if dry_run:
        summary = doing.preview()
    else:
        with _senders(client, found, job_id) as senders:
            summary = doing.run(senders, _progress() if sys.stderr.isatty() else _nothing)
        audit(by, "redrive", job_id, found.tenancy_id, letters=summary.redriven)
    about = {"job": job.name, "task": choice.task, "into": entry.name, "from": str(place)}
    _print(summary, about, dry_run, as_json)
    if summary.outcomes["failed"] or summary.outcomes["given_up"]:
        raise UserError(f"segments have failed, and no letter has them: {summary.first_error}")


def _place(
    job: Job, choice: LetterChoice, way: _Way, found: Settings
) -> tuple[LetterPlace, RedriveMarks]:
    for option, given in (("--from", way.letters), ("--marks", way.marks)):
        if given is not None and not given.strip():
            raise UserError(f"{option} is empty: name a folder or a bucket, or leave it out")
    where = place_of_letters(job, choice.task) if way.letters is None else way.letters
    place: LetterPlace
    if isinstance(where, str):
        place = LetterFolder(absolute(where, found.data_dir))
    else:
        place = place_of_output(job, where, found.data_dir)
    at = place.at if way.marks is None else location_of(absolute(way.marks, found.data_dir))
    if at is None:
        raise UserError(
            f"beside letters in a {place} nothing can be kept: --marks names a folder or a bucket "
            "for what went in, the same one for everybody and each time"
        )
    return place, RedriveMarks(at)


def _running(client: Client, text: str, must_run: bool) -> tuple[JobId, Job, frozenset[str]]:
    """The job that somebody names, or the one in its place, with those that it has upgraded."""
    named = client.named(text)
    replica = client.replica()
    job = in_place_of(replica, named)
    if job is None and must_run:
        raise UserError(
            f"job {named} has ended, and takes nothing: submit a job with the task and an input "
            "that takes requests, with --upgrade or as a new one, and redrive into that"
        )
    if job is not None and must_run and (replica.run(job).suspended or replica.run(job).draining):
        does = "is suspended: `onyx resume` it" if replica.run(job).suspended else "drains"
        raise UserError(f"job {job} {does}, so it takes nothing now")
    job = job or named
    versions = {job}
    old = replica.upgrades(job)
    while old is not None and old not in versions:
        versions.add(old)
        old = replica.upgrades(old)
    return job, client.job(job), frozenset(versions)


def _target(
    job: Job, entry: CatalogEntry, job_id: JobId, versions: frozenset[str], way: _Way
) -> Target:
    key = entry.options.get("partitionKey")

    def accepts(segment: Segment) -> str:
        try:
            parts_of([segment], key, 0, 2)
        except Refused as error:
            return str(error)
        return ""

    untracked = "at-most-once" in (job.guarantee, entry.guarantee)
    level = Level.JOURNAL if untracked else way.ack
    return Target(job_id, entry.name, versions, level, way.timeout_s, accepts)


@contextmanager
def _senders(client: Client, found: Settings, job: JobId) -> Iterator[Callable[[str], Appender]]:
    """An appender to each input of a job that is asked for."""
    with ExitStack() as stack:

        @cache
        def sender(task: str) -> Appender:
            workers = lambda: addresses_of(client.replica())  # noqa: E731
            return stack.enter_context(Appender(workers, job, task, found.tls, client=found.client))

        yield sender


def _moment(text: str, option: str) -> int | None:
    """A time, or how long ago, in milliseconds since 1970."""
    if not text:
        return None
    ago = split(text)
    if ago is not None and ago[1].rstrip("s") + "s" in _SECONDS:
        return int((time.time() - ago[0] * _SECONDS[ago[1].rstrip("s") + "s"]) * 1_000)
    moment = moment_ms(text)
    if moment is None:
        raise UserError(f"{option} {text!r} is no time, as 2026-11-29T08:30:00, nor `2 hours`")
    return moment


# --- what people see ----------------------------------------------------------------------------


def _nothing(_: RedriveSummary) -> None:
    """Nobody watches."""


def _progress() -> Callable[[RedriveSummary], None]:
    next_s = time.monotonic()

    def show(summary: RedriveSummary) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + PROGRESS_S
            print(
                f"{summary.redriven:,} of {summary.letters:,} letters went in, {summary.parts:,} "
                "parts read",
                file=sys.stderr,
            )

    return show


def _print(summary: RedriveSummary, about: dict[str, str], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**about, "dry_run": dry_run, **msgspec.to_builtins(summary)}))
        return
    verb = "would go" if dry_run else "went"
    print(
        f"{summary.redriven:,} {'letter' if summary.redriven == 1 else 'letters'} of "
        f"{about['from']} {verb} into {about['into']} of job {about['job']}, for {about['task']}"
    )
    for kind, count in summary.errors.most_common(SHOWN_MAX):
        print(f"  {count:>9,}  {_short(kind)}, as in {_short(summary.examples[kind])}")
    if len(summary.errors) > SHOWN_MAX:
        print(f"             and {len(summary.errors) - SHOWN_MAX:,} other errors (--json)")
    for why, count in summary.left.most_common(SHOWN_MAX):
        about_one = f": {_short(summary.why_cut)}" if why == CUT else ""
        print(f"  {count:>9,}  left: {_short(why)}{about_one}")
    for what, count in sorted(summary.outcomes.items()):
        first = f"; first error: {_short(summary.first_error)}" if summary.first_error else ""
        print(f"  {count:>9,}  of them: {what.replace('_', ' ')}{first}")
    if summary.finished:
        who = _short(", ".join(summary.finished_by))
        was = "would go in first, which" if dry_run else "went in first, which"
        print(f"  {summary.finished:>9,}  {was} {who} had begun and not ended")
    if summary.open:
        print(f"  {summary.open:>9,}  may have gone in before: {summary.open_why}; see what the")
        print("             job has made of them, and name them by --id with --again")


def _short(text: str) -> str:
    line = " ".join(text.split())
    shown = "".join(each if each.isprintable() else "?" for each in line)
    return shown if len(shown) <= 120 else f"{shown[:120]}..."


def _print_history(marks: RedriveMarks, as_json: bool) -> None:
    for number, claim, _ in marks.claims():
        done = marks.done(number)
        row = {
            "time": datetime.fromtimestamp(claim.wall_ms / 1_000, UTC).isoformat(),
            "by": claim.by,
            "letters": claim.count,
            "job": claim.job,
            "task": claim.task,
            "into": claim.input,
            "outcomes": None if done is None else done.outcomes,
            "taken": None if done is None else done.taken,
            "text": "" if done is None else done.text,
        }
        if as_json:
            print(json.dumps(row))
            continue
        became = "not ended" if done is None else ", ".join(
            f"{count:,} {what.replace('_', ' ')}" for what, count in done.outcomes.items()
        ) or ("processed" if done.taken else "nobody knows")  # fmt: skip
        by = _short(claim.by)
        print(f"{row['time']:<32}  {by:<32} {claim.count:>7,} of {claim.task}: {became}")
