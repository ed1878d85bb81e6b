"""Removal of files that a collected job has left in the places that its tasks name: snapshots of
DataFrames as inputs, and bundles of stages in the middle, `<path>/<job>.<task>`.

A snapshot in which another job reads on, because that has upgraded this one, stays until that one
goes. What tells is the manifest of each snapshot beside it. Rejected: the chain of upgrades in the
replica, which does not know where a task was initialized.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from onyx.errors import OnyxError
from onyx.spark.driver.storage import Place, names_in, remove
from onyx.spark.input.snapshot import MANIFEST
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.urls import ObjectUrl, is_url, parse_url
from onyx.structs import prepared


@prepared
class _Snapshot(msgspec.Struct, frozen=True):
    """What is read of a snapshot's manifest."""

    snapshot: str = ""


def remove_left(path: str, name: str, data_dir: str) -> bool:
    """Remove a folder that a collected job has left; False if somebody still needs it, or it cannot
    be removed now. Blocks.

    Args:
        path: the place as the job says it.
        name: of the folder below it.
        data_dir: where relative paths of jobs begin.
    """
    place = _place(path, data_dir)
    for other in names_in(place):
        if other != name and _snapshot_of(place / other) == name:
            return False
    remove(place / name)
    return name not in names_in(place)


def _place(path: str, data_dir: str) -> Place:
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    return parse_url(plain) if is_url(plain) else Path(os.path.join(data_dir, plain)).absolute()


def _snapshot_of(folder: Place) -> str:
    """The snapshot in which the job of a folder reads; empty if it has none, or that cannot be
    told."""
    try:
        if isinstance(folder, ObjectUrl):
            found = Bucket(folder.bucket).get((folder / MANIFEST).key)
            data = b"{}" if found is None else found.data
        else:
            data = (folder / MANIFEST).read_bytes()
        return msgspec.json.decode(data, type=_Snapshot).snapshot
    except (OSError, OnyxError, msgspec.MsgspecError):
        return ""
