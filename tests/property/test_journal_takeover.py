"""Takeovers of a journal, told one by one, and bugs planted in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.takeover.of_journals import FOLDER, JournalsWorld
from tests.support.takeover.world import Choices, Medium
from tests.support.takeover.world import play as play_in

from onyx.errors import Fenced, StateError
from onyx.journal import journal
from onyx.journal.depot import Depot, Gone
from onyx.journal.journal import Journal
from onyx.journal.logs import (
    ChunkKind,
    ChunkPlace,
    Content,
    JournalLogs,
    RememberedRequest,
    encode_chunk,
)
from onyx.storage.interface import MemoryBlobStore


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 3)


def play(choices: Choices, slow: bool = True, keeps: bool = False) -> None:
    play_in(JournalsWorld(Medium.FOLDER, slow, keeps), choices)


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
        request = RememberedRequest(str(number), b"", journal.end, 1, 0)
        journal.append(Content([[{"n": number}]], (request,)))


def collect(journal: Journal, *numbers: int) -> None:
    """All that it holds, the requests of these numbers."""
    known = [RememberedRequest(str(number), b"", number, 1, 0) for number in numbers]
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

    fence = FOLDER.chunk(1, 2)
    new = Journal(Meanwhile(store, fence, go_on), FOLDER, 2, "new")  # type: ignore[arg-type]

    assert [each.id for each in new.restored] == ["0", "1", "2", *map(str, kept)]
    assert new.end == 3 + len(kept)
    with pytest.raises(Fenced):
        append(old, 4)


def test_a_chunk_that_is_gone_between_others_is_named_and_no_race() -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1, 2)
    gone = FOLDER.chunk(1, 2)
    store.delete(gone)
    with pytest.raises(StateError, match=f"journal file {gone} is gone"):
        Journal(store, FOLDER, 2, "new")
    with pytest.raises(StateError, match=f"journal file {gone} is gone"):
        journal.read_ended(store, FOLDER)


@pytest.mark.parametrize("read", [Journal, journal.read_ended])
@pytest.mark.parametrize("collected", [False, True])
def test_chunks_that_are_gone_at_the_end_are_named(collected: bool, read: Any) -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0, 1)
    if collected:
        collect(old, 0, 1)
    append(old, 2, 3)
    gone = FOLDER.chunk(1, 3)
    for seq in (3, 4):
        store.delete(FOLDER.chunk(1, seq))

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
    gone = FOLDER.mark(1, 2)
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
    store.create(FOLDER.end(2), b"0" * 12)

    assert Journal(store, FOLDER, 3, "new").end == 1


def test_a_fence_of_another_owner_at_such_a_number_is_no_end() -> None:
    store = MemoryBlobStore()
    old = Journal(store, FOLDER, 1, "old")
    append(old, 0)

    def go_on() -> None:
        append(old, 1)
        collect(old, 0, 1)
        # By an owner that has died before it could list.
        store.create(FOLDER.chunk(1, 2), JournalLogs(store, FOLDER).fence_data(1, 2))

    fence = FOLDER.chunk(1, 2)
    new = Journal(Meanwhile(store, fence, go_on), FOLDER, 3, "new")  # type: ignore[arg-type]

    assert new.end == 2
    with pytest.raises(Fenced):
        append(old, 2)


def test_an_owner_that_is_overtaken_while_it_reads_does_not_begin() -> None:
    store = MemoryBlobStore()
    append(Journal(store, FOLDER, 1, "old"), 0)

    def overtake() -> None:
        append(Journal(store, FOLDER, 3, "newer"), 1)

    fence = FOLDER.chunk(1, 2)
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

    listed = [(FOLDER.chunk(2, 0), 1)]
    slow.list = overtake
    for _ in range(2):
        with pytest.raises(Fenced):
            Journal(slow, FOLDER, 2, "new")  # type: ignore[arg-type]


def test_a_writer_that_lists_before_it_opens_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the newer owner lists, the older one opens its log, and nobody fences it."""

    def claim(logs: JournalLogs, version: int, writer: str) -> journal.JournalContent:
        found = logs.steadily(lambda listed: journal._read(logs, listed, version))
        logs.begin(version, encode_chunk(FOLDER, ChunkPlace(version, 0), ChunkKind.OPEN, writer))
        return found

    monkeypatch.setattr("onyx.journal.journal.claim", claim)
    with pytest.raises(AssertionError):
        play([("turn", 0, 2), ("reallocate", 0, 1), ("turn", 0, 6), ("turn", 1, 6)])


@pytest.mark.parametrize("forgotten", [(Depot, "add"), (Journal, "_keep")])
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

    def early(journal: Journal, place: ChunkPlace, summary: Any) -> None:
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
