"""The ZooKeeper of a cluster on this machine, for the time of a block.

Apart from `local_run`, because `onyx run` launches it before it imports the rest of itself and
checks the job: it starts meanwhile. If the job is refused, it has run for nothing.

Its log goes with it, unless a folder is named: then it stays there for `onyx console`, and for the
next run, which goes on in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from onyx.cli.command_line import Option
from onyx.errors import OnyxError, SettingsError, UserError
from onyx.log.server.data_folder import Holding, read_holding
from onyx.log.server.environment import env_of, server_for
from onyx.log.server.process import PRIVATE_FOLDER, ZooKeeperServer
from onyx.processes.surroundings import settings
from onyx.settings import Settings

TENANCY = "run"
"""What runs here has a log of its own, and this name in it."""


KeptOption = Annotated[
    Path | None,
    Option("--kept", "Folder where `onyx run --keep` has left a log.", metavar="FOLDER"),
]


@contextmanager
def local_server(found: Settings, keep: Path | None = None) -> Iterator[ZooKeeperServer]:
    """A server in a folder of its own, both gone at the end. It is launched and may not serve yet:
    whoever waits for it (`environment.env_of`) hears why it does not.

    Args:
        keep: where its log stays; nowhere, if None.

    Raises:
        SettingsError: a setting is wrong, they are of an ensemble, or the folder is in use.
    """
    if keep is not None:
        with _alone_in(keep), _launched(found, keep) as server:
            yield server
        return
    folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
    try:
        with _launched(found, folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def log_of(
    kept: Path | None, zookeeper: str | None, log_folder: Path | None, tenancy: str | None
) -> Iterator[Settings]:
    """The settings of a log to look into: of a cluster, or one that is kept in a folder.

    Raises:
        UserError: nothing is kept there.
        SettingsError: as `local_server`, or somebody wants both.
    """
    found = settings(zookeeper, tenancy or (TENANCY if kept else None), log_folder=log_folder)
    if kept is None:
        yield found
        return
    if zookeeper is not None or log_folder is not None:
        raise SettingsError(
            "give --kept, --log or --zookeeper: a kept log is served by this command"
        )
    with kept_server(found, kept) as server:
        yield env_of(server, found).settings


@contextmanager
def kept_server(found: Settings, folder: Path) -> Iterator[ZooKeeperServer]:
    """A server of a log that is kept there.

    Raises:
        UserError: there is none.
        SettingsError: as `local_server`.
    """
    if not folder.is_dir() or read_holding(folder) is Holding.NOTHING:
        raise UserError(
            f"{folder} has no log: `onyx run --keep {folder}` leaves one there when it runs a job"
        )
    with local_server(found, folder) as server:
        yield server


@contextmanager
def _launched(found: Settings, folder: Path) -> Iterator[ZooKeeperServer]:
    server = server_for(found, folder)
    try:
        with suppress(OnyxError):
            server.launch()
        yield server
    finally:
        # What it has written is safe without an orderly end, which would only take time.
        server.discard()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else has a server there: two in one folder would write over each other's log."""
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise SettingsError(f"no log can be kept in {folder}: {error.strerror}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise SettingsError(
            f"the log in {folder} is in use: end that `onyx run` or `onyx console` first"
        ) from error
    finally:
        os.close(held)
