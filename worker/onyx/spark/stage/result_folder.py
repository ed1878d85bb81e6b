"""The folder of a result, and how a new result gets there: by one rename.

A result is made below the staging directory of its worker, which the worker holds open. The result
of an earlier job steps aside into that directory. If the new one does not come, because the worker
died in between or the rename failed, it goes back before the directory is removed.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

from onyx.base.structs import UNREADABLE
from onyx.ids import JobId
from onyx.spark.result_names import MANIFEST
from onyx.storage.file_system import make_durable_directory, remove_tree, sync_directory
from onyx.storage.staging.folder import DirectoryParts
from onyx.storage.staging.interface import Writer

_BY_SPARK = re.compile(r"part-(?P<number>\d{5,})-[0-9a-f-]{36}(?P<rest>[-_.].+)")
_NEW, _REPLACED = "result-", "replaced"


class StageParts(DirectoryParts):
    """The parts of a stage; the directory of a writer may hold a result, too."""

    def __init__(self, directory: Path, writer: Writer, result: Path) -> None:
        super().__init__(directory, writer)
        self._result = result

    def _remove(self, folder: int, name: str) -> None:
        # Whoever removes the directory of a dead worker removes its only copy of the result with
        # it, unless that goes back first.
        put_back(f"{name}/{_REPLACED}", folder, self._result)
        super()._remove(folder, name)


def is_of(result: Path, job: JobId) -> bool:
    """Whether the result of this job stands."""
    try:
        manifest = json.loads((result / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError, *UNREADABLE):
        return False
    return isinstance(manifest, dict) and manifest.get("job") == job


def new_folder(held: int, result: Path) -> str:
    """A name in the staging directory for a new result; what earlier runs left there is gone."""
    put_back(_REPLACED, held, result)
    for name in os.listdir(held):
        if name.startswith(_NEW) or name == _REPLACED:
            remove_tree(held, name)
    # No other run has it: a server may go on with an earlier one, whose process was ended, and what
    # that still writes must not be in the result of this one.
    return f"{_NEW}{uuid.uuid4().hex[:12]}"


def without_rows(target: Path) -> None:
    """Make a result that has no rows."""
    target.mkdir()
    (target / "_SUCCESS").touch()


def finish(target: Path, run: str, manifest: dict[str, object]) -> None:
    """Make what Spark has written a result, and durable.

    Args:
        run: how the names of its files begin.
    """
    _rename(target, run)
    _make_durable(target, manifest)


def publish(result: Path, held: int, new: str) -> None:
    """The result of an earlier job steps aside just before, so that a reader finds the old one,
    for an instant none, then the new one; never a mixture."""
    if result.exists():
        os.rename(result, _REPLACED, dst_dir_fd=held)
    try:
        make_durable_directory(result.parent)
        # By the descriptor and not by the path of the directory: after a fence Spark may have made
        # the path again, but what the worker holds then leads nowhere, and the rename fails.
        os.rename(new, result, src_dir_fd=held)
    except OSError:
        put_back(_REPLACED, held, result)
        raise
    sync_directory(result.parent)
    remove_tree(held, _REPLACED)


def put_back(replaced: str, folder: int, result: Path) -> None:
    """A result that has stepped aside, unless there is none or another one stands. What cannot be
    put back now stays where it is, and is tried again."""
    with suppress(OSError):
        os.rename(replaced, result, src_dir_fd=folder)
        sync_directory(result.parent)


def _rename(target: Path, run: str) -> None:
    """Give the files of Spark names with the id of the job, as objects of a result have them. What
    does not have the names of Spark is left alone."""
    for path in list(target.rglob("part-*")):
        found = _BY_SPARK.fullmatch(path.name)
        if found is None:
            continue
        name = path.with_name(f"{run}-{found['number']}{found['rest']}")
        if not name.exists():
            path.rename(name)


def _make_durable(target: Path, manifest: dict[str, object]) -> None:
    for checksum in target.rglob(".*.crc"):  # Hadoop's own, which no other reader knows
        checksum.unlink()
    (target / MANIFEST).write_text(json.dumps(manifest) + "\n")
    for path in sorted(target.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(target)
