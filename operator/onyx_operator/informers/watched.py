"""Does the watch of a kind still live? A list shows what it owes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onyx_operator.informers.store import key_of, version
from onyx_operator.liveness import Liveness
from onyx_operator.work_queue import Key


class Watched:
    """Compares what a watch has told with what a list shows; see `Liveness.behind`."""

    def __init__(self, name: str, liveness: Liveness) -> None:
        self._name = name
        self._liveness = liveness
        self._versions: dict[Key, int] = {}
        self._owed: dict[Key, int] = {}

    def told(self, body: Mapping[str, Any], *, gone: bool = False) -> None:
        """The watch has told of an object."""
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
        """A list shows these objects: what is newer than told is owed. True if nothing is."""
        self._owed = {
            key_of(body): version(body)
            for body in bodies
            if version(body) > self._versions.get(key_of(body), 0)
        }
        self._liveness.behind(self._name, bool(self._owed))
        return not self._owed

    def broken(self) -> None:
        """The watch has ended: whatever it told before is to be told again."""
        self._versions.clear()
        self._liveness.behind(self._name, True)

    def excused(self) -> None:
        """The watch owes nothing as long as nobody can list; what it has told stays told."""
        self._owed.clear()
        self._liveness.behind(self._name, False)
