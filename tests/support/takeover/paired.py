"""A store that knows the other half of what is asked of it."""

from __future__ import annotations

import re

from onyx.storage.fenced_log import NOTE
from onyx.storage.interface import MemoryBlobStore

_CHUNK = re.compile(r"(.+/(?:\d{20}(?:-\d{5})?|\d{3}))/(\d+)\Z")


class Paired(MemoryBlobStore):
    """A chunk of a log is created after the one before it, and its log has a note before both. What
    is read is what was written, and nobody has noted more than there was."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, bytes] = {}
        self._last: dict[str, int] = {}
        """The greatest number that a log ever had."""

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        chunk = _CHUNK.match(name)
        if created and chunk is not None:
            log, number = chunk[1], chunk[2]
            before = f"{log}/{int(number) - 1:0{len(number)}d}" if int(number) else f"{log}{NOTE}"
            assert before in self._written, f"{name} is there before {before}"
            self._last[log] = max(int(number), self._last.get(log, 0))
        if created:
            self._written[name] = data
        return created

    def note(self, name: str, data: bytes) -> None:
        last = self._last.get(name.removesuffix(NOTE), -1)
        assert int(data) <= last, f"{name} says {int(data)}, but there was {last} only"
        super().note(name, data)

    def read(self, name: str) -> bytes | None:
        data = super().read(name)
        if data is not None and not name.endswith(NOTE):
            assert data == self._written[name], f"{name} is not what was written"
        return data
