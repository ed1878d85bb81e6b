"""Owners of a log in several allocation versions at once, zombies and the dead, over one store.

They take turns, one call of the store each, in any order, with lost answers and crashes. The store
behaves as a folder or as an object store does: how listings and notes lag is what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

from hypothesis import strategies as st
from tests.support.jobs.turns import Actor, TurnStore, copy_of
from tests.support.takeover.paired import Paired

from onyx.errors import StateError, Unavailable
from onyx.storage.interface import ListedFile, MemoryBlobStore

T = TypeVar("T")
PAGE = 3
"""Names that a listing finds at once; others have a turn before the next ones."""
NOTES_LATE = 3
"""An object store gets every third note only."""
Choices = Sequence[tuple[str, int, int]]


_MANY = st.integers(1, 20)
_ANYTHING = st.sampled_from([*["turn"] * 30, "before", "after", "kill", "reallocate", "follow"])
_CROWD = st.lists(st.tuples(_ANYTHING, st.integers(0, 5), _MANY), max_size=60)
_TWO = st.tuples(
    st.integers(4, 30), st.lists(st.tuples(st.just("turn"), st.integers(0, 1), _MANY), max_size=9)
).map(lambda drawn: [("turn", 0, drawn[0]), ("reallocate", 0, 1), *drawn[1]])
CHOICES: st.SearchStrategy[Choices] = st.one_of(_CROWD, _TWO)
"""What happens, by whom, and how many turns he has then: anything, or one owner after another."""


class Medium(Enum):
    """Where the store is."""

    FOLDER = "a folder"
    """A listing has what was there all the time, and perhaps nothing of what came or went."""
    OBJECTS = "an object store"
    """A listing has pages in the order of names, and notes come late, or with a process never."""


class StoreOf(TurnStore):
    """A store as one process sees it."""

    def __init__(self, actor: Actor, store: MemoryBlobStore, medium: Medium) -> None:
        super().__init__(actor, store)
        self._medium = medium
        self._notes = 0

    def pause(self) -> None:
        """Wait for a turn."""
        self._actor.pause()

    def note(self, name: str, data: bytes) -> None:
        self._notes += 1
        if self._medium is Medium.FOLDER or self._notes % NOTES_LATE == 0:
            super().note(name, data)

    def list(self, prefix: str) -> Sequence[ListedFile]:
        self._call(lambda: None)
        if self._medium is Medium.OBJECTS:
            return list(self._pages(prefix))
        first = self._store.list(prefix)
        self.pause()
        there = set(self._store.list(prefix))
        return [each for each in first if each in there]

    def _pages(self, prefix: str) -> Iterator[ListedFile]:
        last = ""
        while left := [each for each in self._store.list(prefix) if each.name > last]:
            yield from left[:PAGE]
            last = left[:PAGE][-1].name
            if len(left) > PAGE:
                self.pause()


class World(ABC):
    """What happens, and what has been promised."""

    def __init__(self, medium: Medium) -> None:
        self.store = Paired()
        self.medium = medium
        self.actors: list[Actor] = []
        self.version = 0
        self.numbers = 0

    @abstractmethod
    def reallocate(self, who: int) -> None:
        """Owners of a newer version begin."""

    @abstractmethod
    def finish(self) -> None:
        """One more version; those of before go on, and are acknowledged nothing."""

    @abstractmethod
    def check(self, store: Any) -> None:
        """A new owner finds what was promised in a store."""

    def follow(self) -> None:
        """Somebody begins to read who owns nothing, if anybody can."""
        return

    def enter(self, live: Callable[[Any], None]) -> None:
        """A process begins that sees the store as its medium has it."""
        self.actors.append(Actor(lambda actor: live(StoreOf(actor, self.store, self.medium))))

    @property
    def live(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.done]

    def let_go_on(self, turns: int = 200) -> None:
        """Everybody goes on who lives, and dies then."""
        for _ in range(turns):
            for actor in self.live:
                actor.turn()
        for actor in self.actors:
            actor.kill()
        self.raise_errors()

    def raise_errors(self) -> None:
        for actor in self.actors:
            if actor.done and actor.error is not None:
                raise actor.error

    def lose_a_file(self, prefix: str) -> None:
        """One is named that is gone and needed, each time another one. Not in an object store,
        whose notes are late."""
        names = [each.name for each in self.store.list(prefix)]
        if not names or self.medium is Medium.OBJECTS:
            return
        gone = names[self.numbers % len(names)]
        store = copy_of(self.store)
        store.delete(gone)
        named = gone
        try:
            self.check(store)
        except StateError as error:
            named = str(error)
        # Which summary stood for chunks that are gone nobody can tell for sure.
        assert gone in named or gone.endswith((".summary", ".mark"))


def play(world: World, choices: Choices) -> None:
    world.reallocate(1)
    for what, who, many in choices:
        if what == "reallocate":
            world.reallocate(who)
            continue
        if what == "follow":
            world.follow()
            continue
        if not world.live:
            continue
        actor = world.live[-1 - who % len(world.live)]
        if what == "kill":
            actor.kill()
            continue
        if what != "turn":
            actor.fault = what
        for _ in range(many):
            if not actor.done:
                actor.turn()
    world.finish()


def repeated(work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except Unavailable:
            continue
