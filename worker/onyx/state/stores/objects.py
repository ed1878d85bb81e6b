"""Chunks as objects of a store that speaks S3."""

from __future__ import annotations

from onyx.errors import Unavailable
from onyx.objects.bucket import Bucket, only_if
from onyx.objects.connection import ConditionFailed
from onyx.objects.urls import ObjectUrl
from onyx.path_names import path_of_names
from onyx.state.stores.interface import Stored


class ObjectChunkStore:
    """A `ChunkStore` below a URL."""

    def __init__(self, url: ObjectUrl) -> None:
        self._bucket = Bucket(url.bucket)
        self._prefix = f"{url.key}/" if url.key else ""

    def create(self, name: str, data: bytes) -> bool:
        """A request is repeated when its answer is lost, and then finds its own object: so bytes
        are compared. An object that is not there yet may still come, and the error says so."""
        key = self._key(name)
        try:
            self._bucket.put(key, data, only_if(None))
        except ConditionFailed:
            return self.read(name) == data
        except Unavailable:
            found = self.read(name)
            if found is None:
                raise
            return found == data
        return True

    def read(self, name: str) -> bytes | None:
        """All bytes, or None when there is nothing of this name."""
        found = self._bucket.get(self._key(name))
        return None if found is None else found.data

    def list(self, prefix: str) -> list[Stored]:
        """All whose names begin with `prefix`, which ends with `/`, in the order of their names."""
        start = len(self._prefix)
        found = self._bucket.list(f"{self._key(prefix.removesuffix('/'))}/")
        return [Stored(each.key[start:], each.size_bytes) for each in found]

    def delete(self, name: str) -> None:
        """Remove it; nothing happens when it is not there."""
        self._bucket.delete(self._key(name))

    def _key(self, name: str) -> str:
        return self._prefix + "/".join(path_of_names(name, "the name of a chunk"))
