"""Owners of a journal.

Whatever was acknowledged to a writer is what the next owner finds, once, at the position that the
writer was given; after that, no older writer is acknowledged anything else. An owner appends as
soon as it has taken over: nothing waits for the job to be ready. Where what is processed is kept,
whoever follows the journal reads all of it in order.
"""

from __future__ import annotations

from typing import Any

from tests.support.takeover.world import Medium, World, repeated

from onyx.errors import Fenced
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, PartitionFolder, RememberedRequest
from onyx.journal.view import JournalView
from onyx.model.retention import NOTHING, Retention

FOLDER = PartitionFolder("job", "in", 0)
KEPT = Retention(size_bytes=1_000_000)


class JournalsWorld(World):
    def __init__(self, medium: Medium, slow: bool = True, keeps: bool = False) -> None:
        super().__init__(medium)
        self.acked: dict[int, int] = {}
        """Positions by number, of what was acknowledged."""
        self.frontier = 0
        """Below it, everything is processed."""
        self.slow = slow
        """Whether only half of what was acknowledged is processed when chunks are collected."""
        self.retention = KEPT if keeps else NOTHING
        self.followed: dict[int, int] = {}
        """Numbers by position, as they were read by others."""

    def reallocate(self, who: int) -> None:
        self.version += 3
        self.enter(Owner(self, self.version).live)

    def follow(self) -> None:
        if self.retention.keeps:
            self.enter(self._follow)

    def _follow(self, store: Any) -> None:
        """Read from the first position on, for ever."""
        view, position = JournalView(store, FOLDER), 0
        while True:
            position = self._read_on(view, position)

    def _read_on(self, view: JournalView, position: int) -> int:
        block = repeated(lambda: view.read(position))
        if block is None:
            return position
        assert block.first <= position < block.end
        for at, segment in enumerate((each for run in block.runs() for each in run), block.first):
            assert self.followed.setdefault(at, segment["n"]) == segment["n"], f"{at} changed"
        return block.end

    def check(self, store: Any) -> None:
        self.check_found(Journal(store, FOLDER, self.version + 3, "last"))

    def check_found(self, journal: Journal) -> None:
        """What an owner finds holds what was promised until now."""
        ids = [each.id for each in journal.restored]
        assert len(ids) == len(set(ids)), "a request is there twice"
        known = {int(each.id): each.first for each in journal.restored}
        for number, position in self.acked.items():
            assert known.get(number) == position, f"{number} was acknowledged, and is gone"
        assert [each.first for each in journal.restored] == list(range(journal.end))

    def finish(self) -> None:
        self.raise_errors()
        self.lose_a_file(FOLDER.prefix)
        journal = opened(self.store, self.version + 3, self.retention)
        self.check_found(journal)
        self.version += 3
        acked = dict(self.acked)
        self.let_go_on()
        # What was in doubt, and came before the fence, its writer may still find out.
        found = {int(each.id): each.first for each in journal.restored}
        assert self.acked.items() <= found.items(), "a writer that was fenced went on"
        if self.retention.keeps:
            view, position = JournalView(self.store, FOLDER), 0
            assert view.bounds()[:2] == (0, journal.end)
            while position < journal.end:
                position = self._read_on(view, position)
            assert view.read(position) is None
            assert self.followed == {first: number for number, first in found.items()}
        for number, position in acked.items():
            if position >= self.frontier or self.retention.keeps:
                first, runs = journal.read(position)
                segments = [each for run in runs for each in run]
                assert segments[position - first] == {"n": number}


class Owner:
    """A process that takes the partition over and appends numbers."""

    def __init__(self, world: JournalsWorld, version: int) -> None:
        self.world = world
        self.version = version
        self.requests: list[RememberedRequest] = []

    def live(self, store: Any) -> None:
        try:
            journal = repeated(lambda: opened(store, self.version, self.world.retention))
            self.requests = list(journal.restored)
            self.world.check_found(journal)
            for step in range(1, 30):
                self.append(journal)
                if step % 5 == 4:
                    self.collect(journal)
        except Fenced:
            assert self.version < self.world.version, "fenced without a newer version"

    def append(self, journal: Journal) -> None:
        self.world.numbers += 1
        number, position = self.world.numbers, journal.end
        request = RememberedRequest(str(number), b"", position, 1, 0)
        content = Content([[{"n": number}]], (request,))
        assert repeated(lambda: journal.append(content)) == position
        assert position not in self.world.acked.values(), "two were given one position"
        self.world.acked[number] = position
        self.requests.append(request)

    def collect(self, journal: Journal) -> None:
        # The frontier is stored elsewhere, and everything that was acknowledged may be processed.
        acked = max(self.world.acked.values(), default=-1) + 1
        processed = acked // 2 if self.world.slow else acked
        self.world.frontier = max(self.world.frontier, processed)
        journal.collect(self.world.frontier, lambda: self.requests, all_of_it=True)


def opened(store: Any, version: int, retention: Retention) -> Journal:
    return Journal(store, FOLDER, version, f"g{version}", retention)
