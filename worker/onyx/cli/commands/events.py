"""`onyx events`: what has happened to jobs, when, and by whom."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from onyx.cli.command_line import Argument, Option
from onyx.cli.local_server import KeptPlace
from onyx.cli.options import JsonOption, job_id
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.errors import UserError
from onyx.ids import NO_POSITION, JobId
from onyx.log.interface import Origin
from onyx.model.report import listed
from onyx.replica import story
from onyx.replica.authors import UNKNOWN, escaped
from onyx.replica.command import Entry
from onyx.replica.commands import KillJob, SubmitJob
from onyx.replica.job_events import FAILED, JobEvent
from onyx.replica.state import Replica

JobIdArgument = Annotated[
    str | None,
    Argument("A job: its id or the beginning of that, or its name. All without it.", check=job_id),
]
FollowOption = Annotated[bool, Option("--follow -f", "Go on with what happens.")]
AllOption = Annotated[bool, Option("--all", "Also each worker that joins, or is ready.")]
IDS_SHOWN_MAX = 10
DETAIL_CHARACTERS_MAX = 1_000

Print = Callable[[JobEvent], None]


def events(
    job: JobIdArgument = None,
    follow: FollowOption = False,
    details: AllOption = False,
    place: KeptPlace = KeptPlace(),
    as_json: JsonOption = False,
) -> None:
    """Print what has happened to jobs: who has submitted, changed and killed them, which workers
    ran them, what they waited for, and when they ended.

    It reads the log, and what the archive has of it (`ONYX_HISTORY_ARCHIVE`), and says on standard
    error from where on that is. A job may have ended long ago.
    """
    with place.opened() as found, connect(found) as client:
        of = _wanted(client, job)

        def show(event: JobEvent) -> None:
            if details or not event.kind.detail:
                print(_line(client, event, as_json, with_job=job is None), flush=True)

        last = _past(client, of, show)
        if follow:
            _follow(client, last, of, show)


def _wanted(client: Client, job: str | None) -> Callable[[JobId], bool]:
    """Which jobs are meant. Those that are forgotten only the log knows.

    Raises:
        UserError: none, or several.
    """
    if job is None:
        return lambda _: True
    try:
        return client.named(job).__eq__
    except UserError:
        names = _past_jobs(client)
        ids = [id for id in names if names[id] == job] or [id for id in names if id.startswith(job)]
        if len(ids) == 1:
            return ids[0].__eq__
        if not ids:
            raise
    shown = listed(sorted(ids)[:IDS_SHOWN_MAX])
    raise UserError(f"{job} may be any of {len(ids)} jobs of the past: give the id: {shown}")


def _past_jobs(client: Client) -> dict[JobId, str]:
    """The names of all jobs of which the log knows."""
    names: dict[JobId, str] = {}
    for old, entry, _ in client.changes():
        if not names:
            names = {id: record.spec.name for id, record in old.records.items()}
        if isinstance(entry.command, SubmitJob):
            names.setdefault(entry.command.id, entry.command.spec.name)
        elif isinstance(entry.command, KillJob):  # perhaps before anybody submits it
            names.setdefault(entry.command.job, "")
    return names


def _past(client: Client, of: Callable[[JobId], bool], show: Print) -> Replica:
    """Show what there is, and where something is missing; the newest replica."""
    last: Replica | None = None
    for change in client.changes():
        at = change.entry.position
        if last is None and at > NO_POSITION + 1:
            _remark(f"the log reaches back to entry {at} ({_time(change.entry.at_ms)})")
        elif last is not None and change.old.version > last.version:
            _remark(f"entries {last.version + 1} to {change.old.version} are gone")
        last = change.new
        for event in story.events_of(*change, of=of):
            show(event)
    return client.replica() if last is None else last


def _follow(client: Client, replica: Replica, of: Callable[[JobId], bool], show: Print) -> None:
    """Show what happens behind a replica, until somebody ends it."""
    failed, old = threading.Event(), replica

    def deliver(item: Entry | Origin, new: Replica) -> None:
        nonlocal old
        if isinstance(item, Origin):
            _remark(f"entries {old.version + 1} to {item.position} are gone")
        else:
            for event in story.events_of(old, item, new, of):
                show(event)
        old = new

    with client.follow(deliver, replica, failed.set):
        failed.wait()


def _line(client: Client, event: JobEvent, as_json: bool, with_job: bool) -> str:
    time, detail = _time(event.at_ms), _detail(client, event)
    if as_json:
        said = {"time": time, "position": event.position, "text": event.text, **event.fields}
        return json.dumps(said | ({"detail": detail} if detail else {}))
    name = escaped(str(event.about.get("job_name", "")), DETAIL_CHARACTERS_MAX)
    about = f"{event.job or '-'}{f' {name}' if name else ''}  " if with_job else ""
    more = f"\n    {detail}" if detail else ""
    return f"{time:<29}  {about}{event.text}  ({event.by}){more}"


def _detail(client: Client, event: JobEvent) -> str:
    """What the task has reported that killed its job, as long as that is kept."""
    if event.kind is not FAILED:
        return ""
    report = client.exception(event.job) or {}
    return escaped(str(report.get("detail", "")), DETAIL_CHARACTERS_MAX)


def _remark(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _time(at_ms: int) -> str:
    if not at_ms:
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
