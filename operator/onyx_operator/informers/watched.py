"""Does the watch of a kind still live? A list shows what it owes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onyx_operator.informers.store import key_of, version
from onyx_operator.liveness import Liveness
from onyx_operator.work_queue import Key


class Watched:
    """Compares the events of a watch with what lists show; see `Liveness.behind`."""

    def __init__(self, name: str, liveness: Liveness) -> None:
        self._name = name
        self._liveness = liveness
        self._versions: dict[Key, int] = {}
        self._owed: dict[Key, int] = {}

    def event(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """The watch had an event about an object."""
        key = key_of(body)
        if gone:
            self._versions.pop(key, None)
            self._owed.pop(key, None)
        else:
            self._versions[key] = version(body)
            if self._owed.get(key, 0) <= version(body):
                self._owed.pop(key, None)
        self._liveness.behind(self._name, bool(self._owed))

    def listed(self, bodies: Iterable[Mapping[str, Any]]) -> bool:
        """A list shows these objects: a newer version than the watch's is owed. True if none is."""
        self._owed = {
            key_of(body): version(body)
            for body in bodies
            if version(body) > self._versions.get(key_of(body), 0)
        }
        self._liveness.behind(self._name, bool(self._owed))
        return not self._owed

    def broken(self) -> None:
        """The watch has ended: it owes all objects again."""
        self._versions.clear()
        self._liveness.behind(self._name, True)

    def excused(self) -> None:
        """The watch owes nothing while nobody can list; its events so far stay counted."""
        self._owed.clear()
        self._liveness.behind(self._name, False)
