"""Notes of uploads, by which others abort what a writer has begun that died.

A writer puts the note of an upload before it sends a byte, and goes on when the store has answered.
So a note that is cut short was never written: a careless store has kept what a writer had sent of
it when that died, and nothing was uploaded. Anything else in its place is an error, because what it
should name could still be completed.
"""

from __future__ import annotations

import msgspec

from onyx.base.path_names import staged_name
from onyx.base.structs import UNREADABLE, prepared, stored
from onyx.storage.objects.urls import ObjectUrl

_BEGIN = b'{"key":'


@prepared
class UploadNote(msgspec.Struct, frozen=True):
    """What is in a note."""

    key: str
    upload: str
    """Its id."""


def note_of(folder: ObjectUrl, key: str) -> ObjectUrl:
    """Where the upload of an object is noted, in a folder of notes."""
    return folder / staged_name(key.rpartition("/")[2])


def encode_note(key: str, upload: str) -> bytes:
    """The bytes of a note."""
    return msgspec.json.encode(UploadNote(key, upload))


def decode_note(url: ObjectUrl, data: bytes) -> UploadNote | None:
    """A note; None if it was never written. Raises StateError: it is something else."""
    if data[: len(_BEGIN)] == _BEGIN[: len(data)] and not _is_json(data):
        return None
    remedy = "abort the uploads of this task that are left in the bucket, and remove the note"
    note: UploadNote = stored(data, UploadNote, f"the note of an upload, {url},", remedy)
    return note


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except UNREADABLE:
        return False
    return True
