"""The snapshot of a DataFrame: evaluated once, and read by all peers of a task.

    <path>/<job>.<task>/                Parquet files and `_onyx.json`, of which file names
                                        are the partitions
    <path>/.staging/<job>.<task>/       what is not finished, a folder for each writer

A DataFrame has no stable positions: evaluated again, it may have its rows in another order, or
others. So the peer of the lowest slot evaluates it once, and the rows have the positions that they
have in these files. The snapshot appears by one rename. The first one that stands is final:
whoever comes later, after any crash, reads it, and a second one is dropped.

A job that upgrades another one goes on in the snapshot of that: its folder has only `_onyx.json`,
which says where it is.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from onyx.errors import Unavailable, UserError
from onyx.plugins.parts.directory import DirectoryParts, staging_name
from onyx.plugins.protocol import PluginContext, UpgradedJob
from onyx.storage.durable import sync_directory
from onyx.storage.rooted import leads_to, opened
from onyx.structs import prepared

MANIFEST = "_onyx.json"
SUFFIX = ".parquet"


@prepared
class Manifest(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    snapshot: str
    """Name of the folder with the files: its own, or that of the job that was upgraded."""


Evaluate = Callable[[Path, Callable[[], bool]], None]
"""Write the DataFrame as Parquet files to a new folder, as long as it is wanted. Raises what
`child.request.StageRunner` does."""


@dataclass(slots=True)
class Snapshot:
    """The snapshot of one input task of one job."""

    path: Path
    context: PluginContext

    @property
    def folder(self) -> Path | None:
        """Where the files are; None before there is a snapshot.

        Raises:
            UserError: it is damaged.
        """
        return _standing(self.path, staging_name(self.context))

    def files(self, evaluate: Evaluate) -> list[str]:
        """Names of the files, sorted; evaluates the DataFrame unless there is a snapshot.

        Raises:
            UserError: the folder is gone or damaged.
            UserFunctionError: the DataFrame failed.
            Unavailable: Spark or the file system failed; try again.
            Fenced: this incarnation was declared dead meanwhile, or the task is to stop.
        """
        folder = self.folder
        if folder is None:
            self._make(evaluate)
            folder = self.folder
        assert folder is not None, "it was renamed to its place"
        try:
            return sorted(path.name for path in folder.iterdir() if _is_part(path))
        except FileNotFoundError as error:
            named = self.path / staging_name(self.context) / MANIFEST
            raise UserError(
                f"{self.context.where}: the snapshot {folder} is gone, in which this job reads on "
                f"({named}): put it back"
            ) from error
        except OSError as error:
            raise Unavailable(f"{folder} cannot be read: {error.strerror}") from error

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Go on in the snapshot of the job that this one upgrades, if that has begun.

        Raises:
            UserError: it has begun, and its snapshot is gone.
        """
        if self.folder is not None:
            return
        upgraded = old()
        if upgraded is None:
            return
        name = staging_name(replace(self.context, job=upgraded.job))
        folder = _standing(self.path, name)
        if folder is None and upgraded.began:
            raise UserError(
                f"{self.context.where}: the snapshot {self.path / name} of job {upgraded.job} is "
                "gone, which this job goes on reading: put it back, or say `initialize` for this "
                "task in `upgrade.tasks` to read a new one"
            )
        if folder is not None:
            self._make(lambda target, _: target.mkdir(), folder.name)

    def _make(self, evaluate: Evaluate, of: str | None = None) -> None:
        """`of`: the snapshot that this one stands for."""
        store = DirectoryParts(self.path, self.context)
        store.fence(())  # what dead writers have left; one that lives on cannot rename any more
        own = store.own()
        try:
            with store.explained(), opened(own, ()) as held:
                target = own / f"snapshot-{uuid.uuid4().hex[:12]}"
                evaluate(target, lambda: self.context.wanted() and leads_to(own, held))
                if leads_to(own, held) and not target.is_dir():
                    raise UserError(
                        f"{self.context.where}: Spark has written the snapshot to {target}, which "
                        "this worker does not see: `path` must be on a volume that both share"
                    )
                name = staging_name(self.context)
                _make_durable(target, Manifest(of or name))
                # Out of the folder that is held open: Spark makes missing folders again, and what
                # it writes after a fence is a part of the snapshot only.
                _publish(target.name, held, self.path / name)
                sync_directory(self.path)
        finally:
            store.close()


def _standing(path: Path, name: str) -> Path | None:
    try:
        data = (path / name / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path / name} cannot be read: {error.strerror}") from error
    try:
        of = msgspec.json.decode(data, type=Manifest).snapshot
    except msgspec.DecodeError as error:
        raise UserError(f"{path / name / MANIFEST} is damaged: {error}") from error
    return path / of


def _publish(new: str, held: int, place: Path) -> None:
    """The first snapshot is final: a folder that is not empty is never replaced."""
    try:
        os.rename(new, place, src_dir_fd=held)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _is_part(path: Path) -> bool:
    return path.suffix == SUFFIX and not path.name.startswith(("_", "."))


def _make_durable(target: Path, manifest: Manifest) -> None:
    for path in sorted(target.iterdir()):
        if path.is_file() and not _is_part(path):
            path.unlink()  # checksums and marks of Hadoop, which no other reader knows
    (target / MANIFEST).write_text(json.dumps({"snapshot": manifest.snapshot}) + "\n")
    for path in target.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(target)
