"""What the data folder of a ZooKeeper server holds, and how far that can be relied on.

Two small files stand beside ZooKeeper's own. `myid` has the id of the server in its ensemble.
`ensemble` has the number of servers for which the data is complete: `3` after this server has
served as one of three, `1` for data of a server that stood alone, `1 to 3` while three servers are
formed around it. Data without this record proves nothing: an ensemble that never served leaves data
too.

ZooKeeper stores two epochs beside its data: the one in which it last followed a leader, and the
newest that it has promised to follow. A server that starts empty and may not vote writes -1 into
both, and then refuses to start once it has data, even after its first snapshot from a leader. So an
epoch of -1 is removed before each start; ZooKeeper derives it from the data again. Invariant: any
other epoch is a promise to the ensemble and is never changed.

A server that was one of an ensemble may lack what the majority of the others agreed on. So its
folder is refused to a smaller ensemble.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from pathlib import Path

from onyx.errors import SettingsError
from onyx.log.server.config import Ensemble

DATA, ID, RECORD, INITIALIZE = "version-2", "myid", "ensemble", "initialize"
_FILES_OF_DATA = ("snapshot.*", "log.*")
_EPOCHS = ("currentEpoch", "acceptedEpoch")
_NO_EPOCH = b"-1"


class Holding(Enum):
    """What a folder holds."""

    NOTHING = auto()
    BEGUN = auto()
    """Data of an ensemble that is not known to have served."""
    ALONE = auto()
    """All the data of a server that stood alone."""
    FOUNDING = auto()
    """A server; an ensemble is being formed around it."""
    SHARED = auto()
    """Data of an ensemble that has served."""


def read_holding(folder: Path) -> Holding:
    """What a folder that was claimed holds."""
    if not _has_data(folder):
        return Holding.NOTHING
    match _record(folder):
        case (1,):
            return Holding.ALONE
        case (_, _):
            return Holding.FOUNDING
        case (_,):
            return Holding.SHARED
    return Holding.BEGUN


def claim(folder: Path, ensemble: Ensemble | None) -> None:
    """Make a folder that of this server.

    Args:
        folder: exists.
        ensemble: this server's number; None for one that stands alone.

    Raises:
        SettingsError: it is that of another server, or of a larger ensemble.
        OSError: it cannot be written.
    """
    recorded = max(_record(folder), default=0)
    servers = 1 if ensemble is None else len(ensemble.servers)
    if _has_data(folder) and recorded > servers:
        raise _smaller(folder, recorded, servers)
    if ensemble is None:
        if _has_data(folder) and not recorded and (folder / ID).exists():
            raise _smaller(folder, 3, servers)
        return
    if _has_data(folder) and not recorded and not (folder / ID).exists():
        _write(folder / RECORD, "1")
    _claim_id(folder / ID, ensemble.id)


def found(folder: Path, servers: int) -> None:
    """From now on an ensemble of so many servers is formed around the data of this one."""
    _write(folder / RECORD, f"1 to {servers}")


def serves(folder: Path, servers: int) -> None:
    """This server has served as one of so many: its data is theirs."""
    if _record(folder) != (servers,):
        _write(folder / RECORD, str(servers))


def allow_empty(folder: Path, allowed: bool) -> None:
    """Whether the server may vote although it has no data; ZooKeeper reads and removes the file."""
    if allowed:
        _write(folder / INITIALIZE, "")
    else:
        (folder / INITIALIZE).unlink(missing_ok=True)


def forget_no_epoch(folder: Path) -> None:
    """Remove the epochs that say that there is none: the server may hold data by now, or vote."""
    for name in _EPOCHS:
        path = folder / DATA / name
        if path.exists() and path.read_bytes().strip() == _NO_EPOCH:
            path.unlink()


def _has_data(folder: Path) -> bool:
    return any(any((folder / DATA).glob(each)) for each in _FILES_OF_DATA)


def _record(folder: Path) -> tuple[int, ...]:
    path = folder / RECORD
    if not path.exists():
        return ()
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        numbers = tuple(int(each) for each in text.split(" to "))
    except ValueError:
        numbers = ()
    if not 1 <= len(numbers) <= 2 or min(numbers) < 1:
        raise SettingsError(
            f"{path} holds {text[:40]!r} and not the number of servers with which the data beside "
            "it is complete: write 1 if it is that of a server that stood alone"
        )
    return numbers


def _claim_id(path: Path, id: int) -> None:
    """Write the server's id, unless the folder is another server's already."""
    if not path.exists():
        _write(path, str(id))
        return
    found = path.read_text(encoding="utf-8", errors="replace").strip()
    if not found.isdecimal():
        raise SettingsError(
            f"{path} holds {found[:40]!r} and not the number of a ZooKeeper server: write {id} if "
            "the data beside it is that of this server"
        )
    if found != str(id):
        raise SettingsError(
            f"{path.parent} holds the data of ZooKeeper server {found}, and this is server {id}: "
            "give each server of an ensemble a folder of its own"
        )


def _smaller(folder: Path, recorded: int, servers: int) -> SettingsError:
    return SettingsError(
        f"{folder} holds the data of one of {recorded} ZooKeeper servers, and "
        f"zookeeper_server.servers names {servers}: it may lack what the others had agreed on. Run "
        f"{recorded} servers again. If the others are lost for good, write {servers} into "
        f"{folder / RECORD} to go on with what this one has"
    )


def _write(path: Path, text: str) -> None:
    """Whole or not at all, whenever the machine stops."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
