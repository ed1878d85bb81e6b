"""`onyx backup`: one point of a cluster in a folder or bucket; `onyx restore`: an empty log begins
with it; `onyx savepoint`: one job, for another one to begin with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from msgspec import Meta

from onyx.backup.making import BackupMaker
from onyx.backup.place import BackupManifest, BackupPlace, time_name
from onyx.backup.restoring import Restorer
from onyx.backup.savepoints import SavepointMaker
from onyx.base.seams import SystemClock
from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JobOrNoneArgument, JsonOption, LogPlace, saved_place
from onyx.client.connection import connect
from onyx.errors import StateError, UserError
from onyx.log.opening import open_log
from onyx.state.savepoint import SavepointManifest, SavepointPlace

M = TypeVar("M")


def backup(
    to: Annotated[
        str, Option("--to", "Where backups are: a folder, or s3://bucket/prefix.", metavar="PLACE")
    ],
    keep: Annotated[
        int | None,
        Meta(ge=1),
        Option("--keep", "Remove all but so many of the newest backups afterwards.", metavar="N"),
    ] = None,
    place: LogPlace = LogPlace(),
) -> None:
    """Back up the cluster: its log, its jobs, how far their inputs are, and their state.

    Jobs go on meanwhile. Run it where ONYX_STATE_URL is that of the workers. `onyx restore` begins
    an empty log with a backup.
    """
    found = place.settings()
    backups = BackupPlace(saved_place(to, found))
    with connect(found) as client:
        maker = BackupMaker(client, found, backups, _say, SystemClock().wall_ms)
        name, manifest = maker.make()
    gone = backups.keep(keep) if keep is not None else []
    removed = f"; {len(gone)} older removed" if gone else ""
    print(f"{backups.path}/{name}: {_told(manifest)}{removed}")


def restore(
    source: Annotated[str, Argument("Where backups are: a folder, or s3://bucket/prefix.")],
    name: Annotated[
        str | None, Option("--backup", "Which one; the newest if not given.", metavar="NAME")
    ] = None,
    listed: Annotated[bool, Option("--list", "Only list the backups, oldest first.")] = False,
    discard_later: Annotated[
        bool,
        Option(
            "--discard-later",
            "Remove what was written after the backup: state, and parts of exactly-once outputs.",
        ),
    ] = False,
    place: LogPlace = LogPlace(),
) -> None:
    """Begin an empty log with a backup: its jobs go on from that point when workers come.

    Stop workers and the operator first. A log in which anything has happened is refused, and so is
    a backup that is not whole. Nothing is changed by either.
    """
    found = place.settings()
    backups = BackupPlace(saved_place(source, found))
    if listed:
        for each, manifest in _readable(backups.names(), backups.read, backups.path):
            print(f"{each}: {_told(manifest)}")
        return
    wanted = name or backups.newest()
    with closing(open_log(found)) as log:
        restorer = Restorer(log, found, backups, wanted, _say)
        manifest, later = restorer.restore(discard_later)
    gone = len(later.state) + len(later.parts)
    removed = f"; {gone} files of later removed" if gone else ""
    print(f"{wanted}: {_told(manifest)}{removed}")


def savepoint(
    to: Annotated[
        str,
        Option("--to", "Where savepoints are: a folder, or s3://bucket/prefix.", metavar="PLACE"),
    ],
    job: JobOrNoneArgument = None,
    name: Annotated[
        str | None, Option("--name", "What it is called; job and time if not given.")
    ] = None,
    listed: Annotated[bool, Option("--list", "Only list the savepoints that are there.")] = False,
    as_json: JsonOption = False,
    place: LogPlace = LogPlace(),
) -> None:
    """Save a job as it is now, for another job to begin with (`onyx submit --from PLACE/NAME`).

    The job goes on meanwhile, or stays as it is. Run it where ONYX_STATE_URL is that of the
    workers. With --list it needs no cluster; of one job, if one is given by its id.
    """
    found = place.settings()
    savepoints = SavepointPlace(saved_place(to, found))
    if listed:
        for each, saved in _readable(savepoints.names(), savepoints.read, savepoints.path):
            if job in (None, saved.job, saved.spec.name):
                print(_of_savepoint(savepoints, each, saved, as_json))
        return
    if job is None:
        raise UserError("say which job is to be saved, or --list")
    clock = SystemClock()
    with connect(found) as client:
        id = client.named(job)
        wanted = f"{id}-{time_name(clock.wall_ms())}" if name is None else name
        made = SavepointMaker(client, found, savepoints, _say, clock.wall_ms).make(id, wanted)
    print(_of_savepoint(savepoints, wanted, made, as_json))


def _readable(
    names: Sequence[str], read: Callable[[str], M], where: str
) -> Iterator[tuple[str, M]]:
    """What is there, with its name; one that is damaged hides no other one."""
    if not names:
        _say(f"there is none in {where}")
    for name in names:
        try:
            yield name, read(name)
        except (StateError, UserError) as error:
            _say(str(error))


def _of_savepoint(place: SavepointPlace, name: str, saved: SavepointManifest, as_json: bool) -> str:
    where, at = f"{place.path}/{name}", datetime.fromtimestamp(saved.wall_ms / 1000, UTC)
    size_bytes = sum(each.size_bytes for each in (*saved.files, *saved.chunks))
    if as_json:
        about = {"savepoint": where, "job": saved.job, "name": saved.spec.name}
        more = {"tenancy": saved.tenancy, "wallMs": saved.wall_ms, "onyx": saved.onyx}
        return json.dumps({**about, **more, "tasks": {**saved.kinds}, "bytes": size_bytes})
    called = f" ({saved.spec.name})" if saved.spec.name else ""
    return (
        f"{where}: job {saved.job}{called} of tenancy {saved.tenancy} at "
        f"{at.isoformat(timespec='seconds')}, {len(saved.kinds)} tasks, "
        f"{len(saved.files)} files, {size_bytes:,} bytes"
    )


def _told(manifest: BackupManifest) -> str:
    files = [*manifest.files()]
    size_bytes = sum(each.size_bytes for each in files)
    jobs = "1 job" if len(manifest.jobs) == 1 else f"{len(manifest.jobs)} jobs"
    at = f"as after entry {manifest.position}"
    return f"{jobs} {at}, {len(files)} files, {size_bytes:,} bytes"


def _say(what: str) -> None:
    print(f"warning: {what}", file=sys.stderr)
