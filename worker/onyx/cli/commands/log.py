"""`onyx log`, `onyx replica` and `onyx gc`: the log as it is, the value that it folds into, and
starting it from there."""

from __future__ import annotations

import json
import threading
from typing import Annotated, Any

import msgspec
import typer

from onyx import api
from onyx.cli.options import JsonOption, TenancyOption, ZooKeeperOption, settings
from onyx.errors import UserError
from onyx.ids import Position
from onyx.log.interface import Origin
from onyx.replica import canonical
from onyx.replica.entry import Entry

FromOption = Annotated[int, typer.Option("--from", help="First position to show.", min=0)]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with new entries.")]
AtOption = Annotated[int | None, typer.Option("--at", help="As of this position.", min=0)]


def show_log(
    first: FromOption = 0,
    follow: FollowOption = False,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the entries of the log, one a line."""
    with api.connect(settings(zookeeper, tenancy)) as client:
        if follow:
            stop = client.log.subscribe(Position(first - 1), lambda item: _print(item, as_json))
            try:
                threading.Event().wait()
            finally:
                stop()
        after = Position(first - 1)
        while entries := client.log.read(after):
            for entry in entries:
                _print(entry, as_json)
            after = entries[-1].position


def show_replica(
    at: AtOption = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the replica: what the log folds into."""
    with api.connect(settings(zookeeper, tenancy)) as client:
        replica = client.replica(None if at is None else Position(at))
    if at is not None and replica.version != at:
        where = "ends before it" if replica.version < at else "has been collected beyond it"
        raise UserError(f"there is no position {at}: the log {where}, at {replica.version}")
    plain = {key: value for key, value in canonical.to_plain(replica).items() if value or as_json}
    plain["digest"] = canonical.digest(replica)
    print(json.dumps(plain, indent=None if as_json else 2, sort_keys=True))


def collect(
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget the jobs that have ended, and trim the log.

    `onyx jobs` no longer shows them, and their ids are free again. Running jobs do not notice.
    """
    with api.connect(settings(zookeeper, tenancy)) as client:
        collected = client.gc()
    if as_json:
        print(json.dumps({"jobs": collected.jobs, "position": collected.position}))
        return
    count = len(collected.jobs)
    forgotten = f"{count or 'no'} job{'' if count == 1 else 's'} forgotten"
    print(f"{forgotten}; the log starts after entry {collected.position}")


def _print(item: Entry | Origin, as_json: bool) -> None:
    if isinstance(item, Origin):
        line: dict[str, Any] = {"position": item.position, "origin": True}
    else:
        line = {
            "position": item.position,
            "fn": item.command.NAME,
            "args": msgspec.to_builtins(item.command),
            "writer": item.writer,
            "sequence": item.sequence,
            "parent": item.parent,
        }
    if as_json or isinstance(item, Origin):
        print(json.dumps(line, sort_keys=True), flush=True)
        return
    arguments = json.dumps(line["args"], sort_keys=True)
    print(f"{item.position:>8}  {item.command.NAME:<22} {arguments}", flush=True)
