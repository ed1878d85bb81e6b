"""Folders that all processes of a query see: on a volume, or in an object store.

What is in them counts when a row names it, and goes with the query. So no file needs a fence, and
no step has to be one.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import BinaryIO, cast

from onyx.errors import OnyxError
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.urls import ObjectUrl
from onyx.storage.objects.writer import ObjectWriter

Place = Path | ObjectUrl


class NewFile:
    """A file that is there when it is closed."""

    def __init__(self, place: Place) -> None:
        """`place`: a name that nobody else uses."""
        self._writer: ObjectWriter | None = None
        if isinstance(place, Path):
            self.file: BinaryIO = place.open("xb")
        else:
            self._writer = ObjectWriter(Bucket(place.bucket), place.key, lambda upload: None)
            self.file = cast(BinaryIO, self._writer)

    def close(self) -> None:
        """Nothing more is written. Raises UserError, Unavailable: the store does not take it."""
        if self._writer is not None:
            self._writer.settle()
            self._writer.complete()
        self.file.close()


def make(place: Place) -> None:
    """Have an empty folder."""
    remove(place)
    if isinstance(place, Path):
        place.mkdir(parents=True)


def remove(place: Place) -> None:
    """Remove a folder with what is in it, as far as that is possible now."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.suppress(OnyxError):
        bucket = Bucket(place.bucket)
        for found in bucket.list(f"{place.key}/"):
            bucket.delete(found.key)


def names_in(place: Place) -> list[str]:
    """What is in a folder; nothing if that cannot be seen now."""
    if isinstance(place, Path):
        return [each.name for each in place.glob("*")]
    prefix = f"{place.key}/"
    with contextlib.suppress(OnyxError):
        found = Bucket(place.bucket).list(prefix)
        return sorted({each.key.removeprefix(prefix).partition("/")[0] for each in found})
    return []
