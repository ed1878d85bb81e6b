"""A result in an object store: which objects it is, decided by one object, `_onyx.json`.

Each step may be done again by another worker, so each names the objects that it means.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import Unavailable
from onyx.spark.result_names import MANIFEST
from onyx.storage.objects.bucket import Bucket, Piece, only_if
from onyx.storage.objects.connection import ConditionFailed, ObjectMissing
from onyx.storage.objects.urls import ObjectUrl

SUCCESS = "_SUCCESS"


@prepared
class Manifest(msgspec.Struct, frozen=True):
    """What is in `_onyx.json`."""

    job: str
    stage: str
    parts: int
    run: str
    """An id of this attempt alone."""
    files: tuple[str, ...]
    """Names of the files of the result."""
    replaces: tuple[str, ...]
    """Names of files that are to go."""


class ObjectResult:
    """The result of one task, as one peer that runs its stage sees it."""

    def __init__(self, url: ObjectUrl) -> None:
        self.url = url
        self._bucket = Bucket(url.bucket)
        self._key = (url / MANIFEST).key
        self._before: Piece | None = None
        self._standing: Manifest | None = None

    def look(self) -> None:
        """Read which result stands."""
        # Kept as it was read: what `decide` writes later is on the condition that this still is
        # the newest, so of two runs that began alike one finds that the other was first.
        self._before = self._bucket.get(self._key)
        self._standing = _manifest(self._before)

    @property
    def job(self) -> str | None:
        """The job whose result stands; None if there is none."""
        return None if self._standing is None else self._standing.job

    def names(self) -> tuple[str, ...]:
        """Names of the files that are there."""
        prefix = f"{self.url.key}/"
        found = (each.key.removeprefix(prefix) for each in self._bucket.list(prefix))
        return tuple(each for each in found if each not in (MANIFEST, SUCCESS))

    def decide(self, mine: Manifest) -> None:
        """Make this the result that stands, or keep that of another run of this job."""
        try:
            self._bucket.put(self._key, msgspec.json.encode(mine), only_if(self._before))
            self._standing = mine
        except (ConditionFailed, ObjectMissing) as error:
            standing = _manifest(self._bucket.get(self._key))
            if standing is not None and standing.run == mine.run:
                self._standing = mine  # the answer to an earlier try of this very request was lost
                return
            self._remove(mine.files)
            if standing is None or standing.job != mine.job:
                raise Unavailable(
                    f"{self.url}: another job has put its result there meanwhile; let one job at a "
                    "time write to a path"
                ) from error
            self._standing = standing

    def clean_up(self) -> None:
        """What is left to do once it is decided; may be done again."""
        assert self._standing is not None, "a result was decided"
        self._remove(self._standing.replaces)
        self._bucket.put((self.url / SUCCESS).key, b"")

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._bucket.delete((self.url / name).key)


def _manifest(found: Piece | None) -> Manifest | None:
    """None also for what is no manifest of this version: it is replaced."""
    try:
        return msgspec.json.decode(found.data, type=Manifest) if found else None
    except UNREADABLE:
        return None
