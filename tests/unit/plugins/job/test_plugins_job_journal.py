"""Input `job` follows the journal of an input: over collection, upgrades and the end of its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import StateError, Unavailable, UserError
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.ids import JobId
from onyx.journal.journal import Journal, read_ended
from onyx.journal.logs import Content, DepotSpan, PartitionFolder
from onyx.model.retention import DAY_MS, Retention
from onyx.plugins.job.follower import JournalFollower
from onyx.plugins.job.input import JobInput
from onyx.plugins.job.options import JobOptions
from onyx.plugins.protocol import Cursor, JobJournal, OtherJobState
from onyx.plugins.starting import StartAt, StartFrom
from onyx.storage.interface import MemoryBlobStore

DAY = Retention(days=1)


@pytest.fixture(autouse=True)
def two_chunks_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.journal.journal.COLLECTED_CHUNKS_MIN", 2)


@dataclass
class Source:
    """A job whose input `take` keeps its journal, with its versions, and who follows it."""

    partitions: int = 1
    state: OtherJobState = "runs"
    store: MemoryBlobStore = field(default_factory=MemoryBlobStore)
    jobs: list[str] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    journals: list[Journal] = field(default_factory=list)
    away: bool = False
    dropped: bool = False

    def __post_init__(self) -> None:
        self.upgrade("v1", adopts=False)

    def upgrade(self, job: str, adopts: bool = True) -> None:
        """The next version takes the journals over."""
        before, self.journals = self.journals, []
        for number in range(self.partitions):
            folder = PartitionFolder(JobId(job), "take", number)
            journal = Journal(self.store, folder, 1, job, DAY, self.clock.wall_ms)
            if adopts and before:
                old = PartitionFolder(JobId(self.jobs[-1]), "take", number)
                journal.adopt(read_ended(self.store, old), old, journal.end)
            self.journals.append(journal)
        self.jobs.append(job)

    def append(self, *counts: int, partition: int = 0, columns: bool = False) -> Source:
        """A chunk with so many segments each."""
        journal = self.journals[partition]
        for count in counts:
            self.clock.advance(1.0)
            numbers = list(range(journal.end, journal.end + count))
            batch = Columns.of(pa.record_batch({"n": numbers}))
            rows: Segments = batch if columns else [{"n": each} for each in numbers]
            journal.append(Content([rows]))
        return self

    def process(self) -> Source:
        for journal in self.journals:
            journal.collect(journal.end, list, all_of_it=True)
        return self

    def journal_of(self, job: str, task: str, known: Sequence[str]) -> JobJournal | None:
        assert (job, task) == ("orders", "take")
        if self.away:
            raise Unavailable("ZooKeeper does not answer")
        if self.dropped:
            return None
        new = set(self.jobs) - set(known)
        return JobJournal(tuple(self.jobs), self.partitions if new else None, self.state)

    def plugin(
        self,
        columns: bool = False,
        start: StartFrom = "beginning",
        partitions: int | None = None,
        job: str = "follower",
    ) -> JobInput:
        form: Literal["arrow", "dicts"] = "arrow" if columns else "dicts"
        made = plugin_context({}, clock=self.clock, job=job, batch_format=form)
        made = replace(made, journal_of=self.journal_of, durable_store=lambda: self.store)
        options = JobOptions(
            job="orders", task="take", start_from=start, partitions=partitions, poll_seconds=1.0
        )
        return JobInput(made, options)

    def follow(
        self, start: StartFrom = "beginning", partition: str = "0", columns: bool = False
    ) -> Following:
        plugin = self.plugin(columns, start)
        return Following(self, plugin, plugin.start(partition), partition, columns)


class Following:
    """A reader that is asked again and again."""

    def __init__(
        self, source: Source, plugin: JobInput, cursor: Cursor, partition: str, columns: bool
    ) -> None:
        self._source, self._plugin, self._partition = source, plugin, partition
        self._columns = columns
        self.start = cursor
        reader = plugin.open(partition, cursor)
        assert isinstance(reader, JournalFollower)
        self.reader = reader

    def read(self, count: int = 1_000, at_once: int = 3) -> list[int]:
        """What is there now, and what a poll later is."""
        found: list[int] = []
        for _ in range(3):
            while len(found) < count and (got := self._some(min(at_once, count - len(found)))):
                found += got
            self._source.clock.advance(1.0)
        return found

    def _some(self, most: int) -> list[int]:
        if not self._columns:
            return [each["n"] for each in self.reader.read(most)]
        given = self.reader.read_columns(most)
        rows = given if isinstance(given, list) else given.to_pylist()
        return [each["n"] for each in rows]

    def again(self, position: int) -> Following:
        """Whoever goes on from a position."""
        cursor = self.reader.cursor(position)
        stored = Cursor(cursor.position, msgspec.json.decode(msgspec.json.encode(cursor.state)))
        return Following(self._source, self._plugin, stored, self._partition, self._columns)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("of_columns", [False, True])
def test_what_is_taken_is_read_before_and_after_it_is_processed(
    columns: bool, of_columns: bool
) -> None:
    source = Source().append(3, 1, 4, columns=of_columns)
    following = source.follow(columns=columns)
    assert following.read(4) == [0, 1, 2, 3]
    source.process().append(2, columns=of_columns)
    assert following.read() == [4, 5, 6, 7, 8, 9]
    assert not following.reader.exhausted()
    assert source.follow(columns=columns).read() == list(range(10))


def test_each_partition_of_the_journal_is_one_of_the_follower() -> None:
    source = Source(partitions=3).append(2, partition=1).append(1, partition=2)
    names = source.plugin().partitions()
    assert names == ["0", "1", "2"]
    assert [source.follow(partition=each).read() for each in names] == [[], [0, 1], [0]]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("beginning", 2),
        ("end", 9),
        ("1970-01-01T00:00:04Z", 4),
        (StartAt(time_ago=500), 7),
        (StartAt(records_ago=3), 6),
        (StartAt(records_ago=30), 2),
        (StartAt(position=5), 5),
        (StartAt(positions={"0": 8}), 8),
        (StartAt(positions={}), 2),
        ("2199-01-01T00:00:00Z", 9),
    ],
)
def test_a_new_job_begins_where_it_says(start: StartFrom, first: int) -> None:
    source = Source().append(1, 1).process().append(2, 3).process().append(2)
    source.store.delete(source.journals[0]._folder.kept(DepotSpan(0, 2, 2_000)))
    assert source.plugin(start=start).partitions() == ["0"]
    following = source.follow(start)
    assert following.start.position == first
    source.append(1)
    assert following.read() == list(range(first, 10))


@pytest.mark.parametrize("processed", [False, True])
def test_a_position_that_is_not_there_yet_is_waited_for(processed: bool) -> None:
    source = Source().append(2, 3)
    if processed:
        source.process()
    following = source.follow(StartAt(position=8))
    assert following.read() == []
    source.append(1, 1)
    assert following.read() == []
    source.append(2, 1)
    assert following.read() == [8, 9]


def test_positions_of_partitions_that_are_not_there_are_refused() -> None:
    with pytest.raises(UserError, match="has a position for '7', which is no partition"):
        Source().plugin(start=StartAt(positions={"7": 8})).partitions()


def test_a_number_of_partitions_that_the_journal_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match="option 'partitions' is 2, and the journal has 1"):
        Source().plugin(partitions=2).partitions()


def test_a_job_that_would_follow_its_own_input_is_refused() -> None:
    with pytest.raises(UserError, match="a job cannot follow itself"):
        Source().plugin(job="v1").partitions()


@pytest.mark.parametrize("stop", range(0, 11, 2))
@pytest.mark.parametrize("forgotten", [False, True])
def test_whoever_goes_on_from_any_position_reads_the_same_over_upgrades(
    stop: int, forgotten: bool
) -> None:
    source = Source().append(2, 1, 2)
    following = source.follow()
    assert following.read(stop) == list(range(min(stop, 5)))
    source.process().append(1).upgrade("v2")
    source.append(3).process().upgrade("v3")
    source.append(2)
    if forgotten:
        for each in source.jobs[:-1]:
            source.store.remove_tree(each)
        del source.jobs[:-1]
    read = min(stop, 5)
    for position in range(read + 1):
        assert following.again(position).read() == list(range(position, 11))
    assert following.read() == list(range(read, 11))


def test_the_end_of_a_job_that_has_completed_is_the_end() -> None:
    source = Source().append(2)
    following = source.follow()
    source.append(1)
    source.state = "completed"
    assert following.read() == [0, 1, 2]
    assert following.reader.exhausted()
    assert source.follow("end").read() == []


def test_a_job_that_has_completed_and_whose_last_chunk_is_gone_has_no_end() -> None:
    source = Source().append(2, 1)
    gone = source.store.list("v1/journal.inputs/")[-1].name
    assert gone.endswith("/000000000002")
    source.store.delete(gone)
    source.state = "completed"
    with pytest.raises(StateError, match="is gone"):
        source.follow().read()


@pytest.mark.parametrize("state", ["killed", "forgotten"])
def test_of_a_job_that_was_killed_the_rest_is_read_and_then_an_upgrade(
    state: OtherJobState,
) -> None:
    source = Source().append(2)
    following = source.follow()
    source.state = state
    assert following.read() == [0, 1]
    assert "submit a job that upgrades it, or drain this one" in following.reader.obstacle()
    following.reader.cursor(2)
    with pytest.raises(Unavailable, match="submit a job that upgrades it"):
        following.read()
    source.state = "runs"
    source.upgrade("v2")
    source.append(1)
    source.clock.advance(1.0)
    assert following.read() == [2]
    assert not following.reader.obstacle()


def test_a_version_that_begins_its_journal_anew_is_no_part_of_it() -> None:
    source = Source().append(2)
    following = source.follow()
    assert following.read() == [0, 1]
    source.upgrade("v2", adopts=False)
    source.append(5)
    assert following.read() == []
    assert "job v2 has begun another one" in following.reader.obstacle()


def test_what_is_not_kept_any_more_is_named() -> None:
    source = Source().append(2, 2)
    following = source.follow()
    assert following.read(1) == [0]
    source.process().clock.advance(2 * DAY_MS / 1000)
    source.append(1, 1).process().journals[0].drop(6)
    assert following.read(1) == [1]
    with pytest.raises(UserError, match=r"position 2 of partition 0 .* kept from 4 on"):
        following.read()


def test_a_version_with_more_partitions_is_refused() -> None:
    source = Source()
    following = source.follow()
    source.partitions = 2
    source.upgrade("v2", adopts=False)
    with pytest.raises(UserError, match="has 2 partitions, and 1 are followed"):
        following.read()


def test_a_version_without_the_input_is_refused() -> None:
    source = Source().append(1)
    following = source.follow()
    assert following.read() == [0]
    source.dropped = True
    with pytest.raises(UserError, match="upgrades job v1 has no input take any more"):
        following.read()


def test_nothing_is_lost_while_nobody_says_what_became_of_the_job() -> None:
    source = Source().append(2)
    following = source.follow()
    assert following.read() == [0, 1]
    source.away = True
    assert following.read() == []
    assert "ZooKeeper does not answer" in following.reader.obstacle()
    source.away = False
    source.append(1)
    assert following.read() == [2]


def test_an_idle_follower_reads_no_chunk_again() -> None:
    source = Source().append(*[1] * 9)
    following = source.follow("end")
    read: list[str] = []
    following.read()
    plain = source.store.read

    def noted(name: str) -> Any:
        read.append(name)
        return plain(name)

    source.store.read = noted  # type: ignore[method-assign]
    following.read()
    assert not [each for each in read if plain(each)]
