"""Owners of a journal in several allocation versions at once, zombies and the dead, over one store.

Turn by turn, in any order, with lost answers and crashes. Whatever was acknowledged to a writer is
what the next owner finds, once, at the position that the writer was given; after that, no older
writer is acknowledged anything else. An owner appends as soon as it has taken over: nothing waits
for the job to be ready. Where what is processed is kept, whoever follows the journal reads all of
it in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.turns import Actor, TurnStore, copy_of

from onyx.errors import Fenced, StateError, Unavailable
from onyx.journal import opening
from onyx.journal.chunk import Content, Kind, Remembered
from onyx.journal.journal import Journal
from onyx.journal.kept import Gone, Kept
from onyx.journal.names import PartitionFolder, Place
from onyx.journal.view import JournalView
from onyx.model.retention import NOTHING, Retention
from onyx.storage import ends
from onyx.storage.memory import MemoryBlobStore

FOLDER = PartitionFolder("job", "in", 0)
KEPT = Retention(size_bytes=1_000_000)
T = TypeVar("T")


@dataclass
class World:
    """What happens, and what has been promised."""

    store: MemoryBlobStore = field(default_factory=MemoryBlobStore)
    actors: list[Actor] = field(default_factory=list)
    version: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    """Positions by number, of what was acknowledged."""
    frontier: int = 0
    """Below it, everything is processed."""
    slow: bool = True
    """Whether only half of what was acknowledged is processed when chunks are collected."""
    retention: Retention = NOTHING
    numbers: int = 0
    followed: dict[int, int] = field(default_factory=dict)
    """Numbers by position, as they were read by others."""

    def reallocate(self) -> None:
        self.version += 3
        self.actors.append(Actor(Owner(self, self.version).live))

    @property
    def live(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.done]


class Owner:
    """A process that takes the partition over and appends numbers."""

    def __init__(self, world: World, version: int) -> None:
        self.world = world
        self.version = version
        self.requests: list[Remembered] = []

    def live(self, actor: Actor) -> None:
        store = TurnStore(actor, self.world.store)
        try:
            journal = repeated(lambda: opened(store, self.version, self.world.retention))
            self.requests = list(journal.restored)
            check(self.world, journal)
            for step in range(1, 30):
                self.append(journal)
                if step % 5 == 4:
                    self.collect(journal)
        except Fenced:
            assert self.version < self.world.version, "fenced without a newer version"

    def append(self, journal: Journal) -> None:
        self.world.numbers += 1
        number, position = self.world.numbers, journal.end
        request = Remembered(str(number), b"", position, 1, 0)
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


def follow(world: World, actor: Actor) -> None:
    """Read from the first position on, for ever."""
    view, position = JournalView(TurnStore(actor, world.store), FOLDER), 0
    while True:
        position = read_on(world, view, position)


def read_on(world: World, view: JournalView, position: int) -> int:
    block = repeated(lambda: view.read(position))
    if block is None:
        return position
    assert block.first <= position < block.end
    for at, segment in enumerate((each for run in block.runs() for each in run), block.first):
        assert world.followed.setdefault(at, segment["n"]) == segment["n"], "position {at} changed"
    return block.end


def opened(store: Any, version: int, retention: Retention) -> Journal:
    return Journal(store, FOLDER, version, f"g{version}", retention)


def repeated(work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except Unavailable:
            continue


def check(world: World, journal: Journal) -> None:
    """What an owner finds holds what was promised until now."""
    ids = [each.id for each in journal.restored]
    assert len(ids) == len(set(ids)), "a request is there twice"
    known = {int(each.id): each.first for each in journal.restored}
    for number, position in world.acked.items():
        assert known.get(number) == position, f"{number} was acknowledged, and is gone"
    assert [each.first for each in journal.restored] == list(range(journal.end))


CHOICES = st.lists(
    st.tuples(
        st.sampled_from([*["turn"] * 30, "before", "after", "kill", "reallocate", "follow"]),
        st.integers(0, 5),
        st.integers(1, 25),
    ),
    max_size=60,
)
Choices = Sequence[tuple[str, int, int]]


def play(choices: Choices, slow: bool = True, keeps: bool = False) -> None:
    world = World(slow=slow, retention=KEPT if keeps else NOTHING)
    world.reallocate()
    for what, who, many in choices:
        if what == "reallocate":
            world.reallocate()
            continue
        if what == "follow":
            if keeps:
                world.actors.append(Actor(partial(follow, world)))
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
    finish(world)


def finish(world: World) -> None:
    """One more owner; then those of before go on, and are acknowledged nothing."""
    for actor in world.actors:
        if actor.done and actor.error is not None:
            raise actor.error
    lose_a_file(world)
    journal = opened(world.store, world.version + 3, world.retention)
    check(world, journal)
    world.version += 3
    acked = dict(world.acked)
    for _ in range(200):
        for actor in world.live:
            actor.turn()
    for actor in world.actors:
        actor.kill()
        if actor.error is not None:
            raise actor.error
    # What was in doubt, and came before the fence, its writer may still find out.
    found = {int(each.id): each.first for each in journal.restored}
    assert world.acked.items() <= found.items(), "a writer that was fenced went on"
    if world.retention.keeps:
        view, position = JournalView(world.store, FOLDER), 0
        assert view.bounds()[:2] == (0, journal.end)
        while position < journal.end:
            position = read_on(world, view, position)
        assert view.read(position) is None
        assert world.followed == {first: number for number, first in found.items()}
    for number, position in acked.items():
        if position >= world.frontier or world.retention.keeps:
            first, runs = journal.read(position)
            segments = [each for run in runs for each in run]
            assert segments[position - first] == {"n": number}


def lose_a_file(world: World) -> None:
    """One is named that is gone and needed, each time another one."""
    names = [each.name for each in world.store.list(FOLDER.prefix)]
    if not names:
        return
    gone = names[world.numbers % len(names)]
    store = copy_of(world.store)
    store.delete(gone)
    named = gone
    try:
        check(world, Journal(store, FOLDER, world.version + 3, "last"))
    except StateError as error:
        named = str(error)
    # Which summary stood for chunks that are gone nobody can tell for sure.
    assert gone in named or (gone.endswith(".summary") and ".summary" in named)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 3)


@given(CHOICES, st.booleans(), st.booleans())
@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_what_was_acknowledged_is_what_the_next_owner_finds(
    choices: Choices, slow: bool, keeps: bool
) -> None:
    play(choices, slow, keeps)


class Meanwhile:
    """A store in which something happens just before a file is created."""

    def __init__(self, store: MemoryBlobStore, name: str, happens: Callable[[], None]) -> None:
        self._store = store
        self._name = name
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, name: str, data: bytes) -> bool:
        if name == self._name:
            self._name = ""
            self._happens()
        return self._store.create(name, data)


def append(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        request = Remembered(str(number), b"", journal.end, 1, 0)
        journal.append(Content([[{"n": number}]], (request,)))


def collect(journal: Journal, *numbers: int) -> None:
    """All that it holds, the requests of these numbers."""
    known = [Remembered(str(number), b"", number, 1, 0) for number in numbers]
    assert journal.collect(journal.end, lambda: known, all_of_it=True)


def test_a_log_is_ended_though_all_of_its_chunks_are_collected() -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1)
    collect(old, 0, 1)

    new = Journal(store, FOLDER, 2, "new")

    assert new.end == 2
    with pytest.raises(Fenced):
        append(old, 2)


@pytest.mark.parametrize("kept", [(), (3,)])
def test_a_fence_at_a_number_that_was_collected_meanwhile_is_no_end(kept: tuple[int, ...]) -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0)

    def go_on() -> None:
        append(old, 1, 2)
        collect(old, 0, 1, 2)
        append(old, *kept)

    fence = FOLDER.chunk(Place(1, 2))
    new = Journal(Meanwhile(store, fence, go_on), FOLDER, 2, "new")  # type: ignore[arg-type]

    assert [each.id for each in new.restored] == ["0", "1", "2", *map(str, kept)]
    assert new.end == 3 + len(kept)
    with pytest.raises(Fenced):
        append(old, 4)


def test_a_chunk_that_is_gone_between_others_is_named_and_no_race() -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1, 2)
    gone = FOLDER.chunk(Place(1, 2))
    store.delete(gone)
    with pytest.raises(StateError, match=f"journal file {gone} is gone"):
        Journal(store, FOLDER, 2, "new")
    with pytest.raises(StateError, match=f"journal file {gone} is gone"):
        opening.read_ended(store, FOLDER)


@pytest.mark.parametrize("read", [Journal, opening.read_ended])
@pytest.mark.parametrize("collected", [False, True])
def test_chunks_that_are_gone_at_the_end_are_named(collected: bool, read: Any) -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1)
    if collected:
        collect(old, 0, 1)
    append(old, 2, 3)
    gone = FOLDER.chunk(Place(1, 3))
    for seq in (3, 4):
        store.delete(FOLDER.chunk(Place(1, seq)))

    for version in (2, 3):
        arguments = (version, f"g{version}") if read is Journal else ()
        with pytest.raises(
            StateError, match=f"job 'job', task 'in': journal file {gone},.* is gone"
        ):
            read(store, FOLDER, *arguments)


@pytest.mark.parametrize("more", [(), (2,)], ids=["nothing behind it", "a chunk behind it"])
def test_a_summary_that_is_gone_is_named(more: tuple[int, ...]) -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1)
    collect(old, 0, 1)
    append(old, *more)
    gone = FOLDER.summary(Place(1, 2))
    store.delete(gone)

    with pytest.raises(StateError, match=gone):
        Journal(store, FOLDER, 2, "new")


@pytest.mark.parametrize(("lost", "named"), [(".end", r"\.end"), ("/", "/000000000000")])
def test_a_log_that_has_lost_what_says_that_it_is_there_is_named(lost: str, named: str) -> None:
    store = MemoryBlobStore()
    append(Journal(store, FOLDER, 1, "old"), 0)
    for each in store.list(FOLDER.prefix):
        if lost in each.name.removeprefix(FOLDER.prefix):
            store.delete(each.name)

    with pytest.raises(StateError, match=f"{named} is gone"):
        Journal(store, FOLDER, 2, "new")


def test_an_owner_that_died_before_it_opened_its_log_has_lost_nothing() -> None:
    store = MemoryBlobStore()
    append(Journal(store, FOLDER, 1, "old"), 0)
    ends.begin(store, FOLDER.end(2))

    assert Journal(store, FOLDER, 3, "new").end == 1


def test_a_fence_of_another_owner_at_such_a_number_is_no_end() -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0)

    def go_on() -> None:
        append(old, 1)
        collect(old, 0, 1)
        place = Place(1, 2)  # by an owner that has died before it could list
        store.create(FOLDER.chunk(place), opening.encode_chunk(FOLDER, place, Kind.FENCE, ""))

    fence = FOLDER.chunk(Place(1, 2))
    new = Journal(Meanwhile(store, fence, go_on), FOLDER, 3, "new")  # type: ignore[arg-type]

    assert new.end == 2
    with pytest.raises(Fenced):
        append(old, 2)


def test_an_owner_that_is_overtaken_while_it_reads_does_not_begin() -> None:
    store = MemoryBlobStore()
    append(Journal(store, FOLDER, 1, "old"), 0)

    def overtake() -> None:
        append(Journal(store, FOLDER, 3, "newer"), 1)

    fence = FOLDER.chunk(Place(1, 2))
    with pytest.raises(Fenced):
        Journal(Meanwhile(store, fence, overtake), FOLDER, 2, "new")  # type: ignore[arg-type]


def test_an_owner_that_is_overtaken_before_it_lists_does_not_delete_its_fence() -> None:
    store = MemoryBlobStore()
    slow = Meanwhile(store, "", lambda: None)

    def overtake(prefix: str) -> Any:
        slow.list = store.list
        newer = Journal(store, FOLDER, 3, "newer")
        append(newer, 0)
        collect(newer, 0)
        return listed

    listed = [(FOLDER.chunk(Place(2, 0)), 1)]
    slow.list = overtake
    for _ in range(2):
        with pytest.raises(Fenced):
            Journal(slow, FOLDER, 2, "new")  # type: ignore[arg-type]


def test_a_writer_that_lists_before_it_opens_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the newer owner lists, the older one opens its log, and nobody fences it."""

    def claim(store, folder, version, writer):  # type: ignore[no-untyped-def]
        found = opening._patiently(store, folder, version)
        place = Place(version, 0)
        store.create(folder.chunk(place), opening.encode_chunk(folder, place, Kind.OPEN, writer))
        return found

    monkeypatch.setattr("onyx.journal.journal.claim", claim)
    with pytest.raises(AssertionError):
        play([("turn", 0, 2), ("reallocate", 0, 1), ("turn", 0, 6), ("turn", 1, 6)])


@pytest.mark.parametrize("forgotten", [(Kept, "add"), (Journal, "_keep")])
def test_a_collector_that_keeps_nothing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, forgotten: tuple[type, str]
) -> None:
    """A planted bug: chunks go that were to be kept."""
    monkeypatch.setattr(*forgotten, lambda *arguments: None)
    with pytest.raises((AssertionError, Gone)):
        play([("turn", 0, 25), ("turn", 0, 25)], slow=False, keeps=True)


def test_a_collector_that_deletes_first_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the summary comes before the file, and its writer dies in between."""
    replace = Journal._replace

    def early(journal: Journal, place: Place, summary: Any) -> None:
        replace(journal, place, summary)
        keep(journal, list(journal._index.before(summary.end)))

    keep = Journal._keep
    monkeypatch.setattr(Journal, "_keep", lambda *arguments: None)
    monkeypatch.setattr(Journal, "_replace", early)
    found = []
    for turns in range(10, 25):
        try:
            play([("turn", 0, turns), ("kill", 0, 1)], slow=False, keeps=True)
        except (AssertionError, Gone) as error:
            found.append(error)
    assert found


def test_a_collector_that_forgets_the_summary_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted bug: chunks go, and what must outlive them goes with them."""
    monkeypatch.setattr(Journal, "_replace", lambda *arguments: None)
    with pytest.raises(Exception, match=r"is gone|files are missing|begins at position"):
        play([("turn", 0, 25), ("reallocate", 0, 1), ("turn", 0, 25)])
