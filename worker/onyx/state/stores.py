"""Which store keeps the state of a cluster."""

from __future__ import annotations

from pathlib import Path

from onyx.errors import UserError
from onyx.objects.urls import is_url, parse_url
from onyx.state.directory_store import DirectoryStore
from onyx.state.interface import ChunkStore
from onyx.state.object_store import ObjectChunkStore

__all__ = ["ChunkStore", "open_store", "remove"]


def open_store(place: str) -> ChunkStore:
    """The store at `s3://bucket/prefix` or in a directory, which is made when first needed.

    Raises:
        UserError: the URL is wrong or carries credentials.
        SettingsError: the library for object stores is not installed.
    """
    if not is_url(place):
        return DirectoryStore(Path(place))
    try:
        return ObjectChunkStore(parse_url(place))
    except UserError as error:
        raise type(error)(f"ONYX_STATE_URL {error}") from error


def remove(store: ChunkStore, job: str) -> None:
    """Delete all state of a job, which is over and has been collected."""
    for each in store.list(f"{job}/"):
        store.delete(each.name)
