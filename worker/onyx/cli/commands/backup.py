"""`onyx backup`: one point of a cluster in a folder or bucket; `onyx restore`: an empty log begins
with it."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

from msgspec import Meta

from onyx.backup.making import BackupMaker
from onyx.backup.place import BackupManifest, BackupPlace
from onyx.backup.restoring import Restorer
from onyx.base.seams import SystemClock
from onyx.cli.command_line import Argument, Option
from onyx.cli.options import LogPlace
from onyx.client.connection import connect
from onyx.log.opening import open_log
from onyx.storage.opening import absolute


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
    backups = BackupPlace(absolute(to, found.data_dir))
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
    backups = BackupPlace(absolute(source, found.data_dir))
    if listed:
        for each in backups.names():
            print(f"{each}: {_told(backups.read(each))}")
        return
    wanted = name or backups.newest()
    with closing(open_log(found)) as log:
        restorer = Restorer(log, found, backups, wanted, _say)
        manifest, later = restorer.restore(discard_later)
    gone = len(later.state) + len(later.parts)
    removed = f"; {gone} files of later removed" if gone else ""
    print(f"{wanted}: {_told(manifest)}{removed}")


def _told(manifest: BackupManifest) -> str:
    files = [*manifest.files()]
    size_bytes = sum(each.size_bytes for each in files)
    jobs = "1 job" if len(manifest.jobs) == 1 else f"{len(manifest.jobs)} jobs"
    at = f"as after entry {manifest.position}"
    return f"{jobs} {at}, {len(files)} files, {size_bytes:,} bytes"


def _say(what: str) -> None:
    print(f"warning: {what}", file=sys.stderr)
