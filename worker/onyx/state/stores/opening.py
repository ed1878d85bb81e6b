"""Which store keeps the state of a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from onyx.errors import UserError
from onyx.objects.urls import is_url, parse_url
from onyx.settings import Settings
from onyx.state.names import WINDOWS_BY_SPARK
from onyx.state.stores.directory import GROUP, PRIVATE, DirectoryStore
from onyx.state.stores.interface import ChunkStore
from onyx.state.stores.objects import ObjectChunkStore

__all__ = ["ChunkStore", "open_store", "remove", "state_place"]

DEFAULT_FOLDER = ".onyx/state"
"""Below the data folder."""


def open_store(place: str, group_access: bool = False) -> ChunkStore:
    """The store at `s3://bucket/prefix` or in a directory, which is made when first needed.

    Args:
        group_access: whether more than the user who runs the worker may use the directory.

    Raises:
        UserError: the URL is wrong or carries credentials.
        SettingsError: the library for object stores is not installed.
    """
    if not is_url(place):
        return DirectoryStore(Path(place), GROUP if group_access else PRIVATE)
    try:
        return ObjectChunkStore(parse_url(place))
    except UserError as error:
        raise type(error)(f"ONYX_STATE_URL {error}") from error


def state_place(settings: Settings) -> str:
    """URL or path of the place where a worker with these settings keeps state."""
    place = settings.state.url or DEFAULT_FOLDER
    return place if is_url(place) else os.path.join(settings.data_dir, place)


def remove(store: ChunkStore, job: str) -> None:
    """Delete all state of a job, which is over and has been collected."""
    if isinstance(store, DirectoryStore):
        store.remove_folder(f"{job}/{WINDOWS_BY_SPARK}")
    for each in store.list(f"{job}/"):
        store.delete(each.name)
