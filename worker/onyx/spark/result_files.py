"""Files of results: how they are called, and the removal of those that a collected job has left in
the locations that its tasks name, `<path>/<job>.<task>`: snapshots of DataFrames as inputs, and
bundles of stages in the middle.

A snapshot in which another job reads on, because that has upgraded this one, stays until that one
goes. What tells is the manifest of each snapshot beside it. Rejected: the chain of upgrades in the
replica, which does not know where a task was initialized.
"""

from __future__ import annotations

import msgspec

from onyx.base.structs import prepared, stored
from onyx.errors import OnyxError
from onyx.rights import rights_of
from onyx.settings import Settings
from onyx.storage.interface import Location
from onyx.storage.opening import absolute, is_remote, location_of

SUFFIX = ".parquet"
MANIFEST = "_onyx.json"
"""Beside files: which of them count. Readers of Parquet folders leave such names out."""


@prepared
class _Snapshot(msgspec.Struct, frozen=True):
    """What is read of a snapshot's manifest."""

    snapshot: str = ""


def remove_left(path: str, name: str, settings: Settings) -> bool:
    """Remove a folder that a collected job has left; False if somebody still needs it or may need
    it, or it cannot be removed now. Blocks.

    Args:
        path: the location as the job says it.
        name: of the folder below it.
        settings: of this worker: where relative paths of jobs begin, and what they may name.
    """
    path = absolute(path, settings.data_dir)
    if not is_remote(path) and rights_of(settings).why_not_path(path) is not None:
        return False  # the job has not written there either
    location = location_of(path)
    try:
        folders = [each.name for each in location.entries() or () if each.is_folder]
        if any(_snapshot_of(location, other) == name for other in folders if other != name):
            return False
        location.remove_tree(name)
    except OnyxError:
        return False
    return True


def _snapshot_of(location: Location, folder: str) -> str:
    """The snapshot in which the job of a folder reads; empty if it has none. Raises OnyxError: that
    cannot be told."""
    name = f"{folder}/{MANIFEST}"
    data = location.read(name)
    if data is None:
        return ""
    found: _Snapshot = stored(data, _Snapshot, location.path_of(name))
    return found.snapshot
