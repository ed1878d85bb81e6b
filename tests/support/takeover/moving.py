"""A folder as somebody lists it while others write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.storage.interface import BlobStore, ListedFile


class Moving:
    """A folder in which something happens before a log is ended, and again while that is listed: a
    listing has what was there all the time, and nothing of what came or went."""

    def __init__(self, store: BlobStore, log: str, moves: Callable[[], None], times: int) -> None:
        self._store = store
        self._log = log
        self._moves = moves
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, name: str, data: bytes) -> bool:
        if name.startswith(self._log):
            self._move()
        return self._store.create(name, data)

    def list(self, prefix: str) -> Sequence[ListedFile]:
        first = self._store.list(prefix)
        if prefix == self._log:
            self._move()
        there = set(self._store.list(prefix))
        return [each for each in first if each in there]

    def _move(self) -> None:
        if self._times:
            self._times -= 1
            self._moves()
