"""Owners of logs of numbers: the least that stands on `storage.fenced_log`.

An owner appends as soon as it has taken over. A mark holds all numbers before it, and stands for
its own chunk too, or not: as the summaries of journals, and as the snapshots of state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec
from tests.support.takeover.world import Medium, World, repeated

from onyx.errors import Fenced, StateError
from onyx.storage.fenced_log import FencedLogs, Listed, LogFolder, LogWriter, Missing

FENCE = -1


class NumbersFolder(LogFolder[int], frozen=True):
    """Logs are called by their versions."""

    KEY: ClassVar[str] = r"\d{3}"
    DIGITS: ClassVar[int] = 4
    MARK: ClassVar[str] = ".mark"

    prefix: str = "logs/"

    def name_of(self, key: int) -> str:
        return f"{key:03d}"

    def key_of(self, name: str) -> int:
        return int(name)


class Piece(msgspec.Struct, frozen=True):
    """A chunk."""

    version: int
    seq: int
    number: int

    @property
    def is_fence(self) -> bool:
        return self.number == FENCE


class Numbers(FencedLogs[int, Piece]):
    """One number a chunk."""

    WHAT = "numbers"

    def __init__(self, store: Any) -> None:
        self.folder = NumbersFolder()
        super().__init__(store, self.folder)

    def decode(self, key: int, seq: int, data: bytes) -> Piece:
        piece = msgspec.json.decode(data, type=Piece)
        assert (piece.version, piece.seq) == (key, seq)
        return piece

    def encode(self, key: int, seq: int, number: int) -> bytes:
        return msgspec.json.encode(Piece(key, seq, number))

    def fence_data(self, key: int, seq: int) -> bytes:
        return self.encode(key, seq, FENCE)

    def fenced(self, key: int) -> Fenced:
        return Fenced(f"version {key} is over")

    def lost(self, missing: Missing) -> StateError:
        return StateError(f"{missing} is gone")


class NumbersLog:
    """The log of a version, open. Reading begins at the newest mark."""

    def __init__(self, store: Any, version: int, inclusive: bool = False) -> None:
        """`inclusive`: whether a mark stands for its own chunk."""
        self._logs = logs = Numbers(store)
        self._version = version
        self._inclusive = inclusive
        if not logs.begin(version, logs.encode(version, 0, 0)):
            raise logs.fenced(version)
        self.numbers, last = logs.steadily(self._read)
        if logs.find(version, last + 1) is not None:
            raise logs.fenced(version)
        self._writer = LogWriter(logs, version, last)

    def append(self, number: int) -> None:
        self._writer.append(number, lambda seq: self._logs.encode(self._version, seq, number))
        self.numbers.append(number)

    def collect(self) -> None:
        logs, seq = self._logs, self._writer.last
        known = self.numbers if self._inclusive else self.numbers[:-1]
        mark = logs.folder.mark(self._version, seq)
        logs.store.create(mark, msgspec.json.encode(known))
        for key, log in logs.list().items():
            if key <= self._version:
                upto = seq + self._inclusive if key == self._version else log.last
                for name in logs.before(key, log, upto):
                    if name != mark:
                        logs.store.delete(name)

    def _read(self, listed: Mapping[int, Listed]) -> tuple[list[int], int]:
        logs, own = self._logs, self._version
        if any(log.sizes for key, log in listed.items() if key > own):
            raise logs.fenced(own)
        found: list[int] = []
        last = 0
        marks = [(key, log.marks[-1]) for key, log in listed.items() if log.marks]
        start = max(marks, default=(0, 0))
        if marks:
            data = logs.store.read(logs.folder.mark(*start))
            if data is None:
                raise Missing(logs.folder.mark(*start))
            found = msgspec.json.decode(data)
        for key, log in listed.items():
            logs.check_begun(key, log)
            if not log.opened:
                continue
            if key == own:
                end = logs.end(key, log)
                if end in log.sizes:
                    raise logs.fenced(key)
                last = end - 1
            else:
                end = logs.fence(key, log, replaced=start[0] > key)
            first = start[1] + self._inclusive if key == start[0] else 1
            if key >= start[0]:
                found += [logs.read(key, seq).number for seq in range(first, end)]
        return found, last


class LogsWorld(World):
    """Whatever was acknowledged to a writer the next owner finds, once and in order; after that no
    older writer is acknowledged anything else."""

    def __init__(self, medium: Medium, inclusive: bool = False, often: bool = True) -> None:
        super().__init__(medium)
        self.inclusive = inclusive
        self.every = 2 if often else 4
        """A mark comes after so many numbers."""
        self.acked: dict[int, int] = {}
        """What was acknowledged, by its place among all numbers."""

    def reallocate(self, who: int) -> None:
        self.version += 3
        version = self.version
        self.enter(lambda store: self._live(store, version))

    def _live(self, store: Any, version: int) -> None:
        try:
            log = repeated(lambda: NumbersLog(store, version, self.inclusive))
            self._check_found(log.numbers)
            for step in range(1, 40):
                self.numbers += 1
                number, place = self.numbers, len(log.numbers)
                repeated(partial(log.append, number))
                assert place not in self.acked, "two were given one place"
                self.acked[place] = number
                if step % self.every == 1:
                    repeated(log.collect)
        except Fenced:
            assert self.version > version, "fenced without a newer version"

    def _check_found(self, found: list[int]) -> None:
        assert len(found) == len(set(found)), "something is there twice"
        assert self.acked.items() <= dict(enumerate(found)).items(), "what was promised is gone"

    def check(self, store: Any) -> None:
        self._check_found(NumbersLog(store, self.version + 3, self.inclusive).numbers)

    def finish(self) -> None:
        self.raise_errors()
        self.lose_a_file("logs/")
        found = NumbersLog(self.store, self.version + 3, self.inclusive).numbers
        self._check_found(found)
        self.version += 3
        self.let_go_on()
        # What was in doubt, and came before the fence, its writer may still find out.
        self._check_found(found)
