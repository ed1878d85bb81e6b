"""Input `job`: parts that appear in any order have one order for good, and each is read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.examples import examples
from tests.support.failing_files import failing_files
from tests.support.jobs.plugin_context import plugin_context

from onyx.base.seams import SystemClock
from onyx.errors import StateError, Unavailable, UserError
from onyx.plugins.job.input import (
    PARTS_MAX,
    JobInput,
    PartsCursor,
    PartsFeed,
    PartsReader,
    partition_of,
)
from onyx.plugins.job.options import JobOptions
from onyx.plugins.protocol import START, Cursor, JobOutput, PluginContext
from onyx.plugins.starting import StartAt, StartFrom
from onyx.storage.interface import MemoryBlobStore

WRITERS = ["0-aaaaaaaaaaaa", "1-bbbbbbbbbbbb"]
READS_MAX = 2_000
State = Literal["runs", "completed", "killed", "forgotten"]


@dataclass
class Followed:
    """A job whose output is followed."""

    folder: Path
    paths: dict[str, str] = field(default_factory=dict)
    state: State = "runs"
    number: int = 0
    last: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.paths = self.paths or {"first": str(self.folder)}

    def output(self, job: str, task: str, known: Sequence[str]) -> JobOutput:
        assert (job, task) == ("first", "out")
        return JobOutput(dict(self.paths), self.state, self.last)

    def publish(
        self, rows: int, writer: int = 0, number: int = 0, job: str = "first", form: str = "jsonl"
    ) -> None:
        """A part with so many rows, whose numbers nobody else has."""
        values = [{"n": self.number + row} for row in range(rows)]
        self.number += rows
        path = self.folder / f"part-out--{job}--{WRITERS[writer]}-{number:06d}.{form}"
        if form == "jsonl":
            path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in values))
        else:
            batch = pa.Table.from_pylist(values, pa.schema([("n", pa.int64())]))
            pq.write_table(batch, path)


def context(followed: Followed, store: MemoryBlobStore, **more: Any) -> PluginContext:
    made = plugin_context({}, clock=SystemClock(), job="follower", **more)
    return replace(
        made,
        output_of=followed.output,
        journal_of=lambda job, task, known: None,
        durable_store=lambda: store,
    )


class Reading:
    """Owners of one partition, one after another."""

    def __init__(
        self, followed: Followed, columns: bool = False, start: StartFrom = "beginning"
    ) -> None:
        self.followed, self.start = followed, start
        self.store = MemoryBlobStore()
        self.version = 0
        self.columns = columns
        self.wake = threading.Event()

    def owner(self) -> JobInput:
        self.version += 1
        form: Literal["arrow", "dicts"] = "arrow" if self.columns else "dicts"
        incarnation = f"g{self.version}"
        made = context(self.followed, self.store, batch_format=form, incarnation=incarnation)
        found = JobInput(
            replace(made, wake=self.wake.set),
            JobOptions(job="first", task="out", poll_seconds=0.1, start_from=self.start),
        )
        found.allocate(self.version)
        return found


def taken(reader: PartsReader, most: int, columns: bool = False) -> list[int]:
    if not columns:
        return [each["n"] for each in reader.read(most)]
    found = reader.read_columns(most)
    rows = found if isinstance(found, list) else found.to_pylist()
    return [each["n"] for each in rows]


def read_until(
    reader: PartsReader, wanted: Callable[[list[int]], bool], wake: threading.Event, **more: Any
) -> list[int]:
    found: list[int] = []
    for _ in range(READS_MAX):
        got = taken(reader, 3, **more)
        found += got
        if wanted(found):
            return found
        if not got:
            wake.wait(0.05)
            wake.clear()
    raise AssertionError(f"{len(found)} rows after so many reads")


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_parts_are_read_as_they_are_published_until_the_job_has_completed(
    tmp_path: Path, columns: bool, form: str
) -> None:
    followed = Followed(tmp_path / "out")
    reading = Reading(followed, columns)
    with closing(reading.owner()) as plugin:
        (name,) = plugin.partitions()
        reader = plugin.open(name, START)
        followed.publish(5, writer=1, form=form)
        found = read_until(reader, lambda all_: len(all_) == 5, reading.wake, columns=columns)
        followed.publish(4, writer=0, form=form)  # a smaller name
        followed.publish(0, writer=0, number=1)
        followed.publish(3, writer=0, number=2, form=form)
        found += read_until(reader, lambda all_: len(all_) == 7, reading.wake, columns=columns)
        assert not reader.exhausted()
        followed.state = "completed"
        read_until(reader, lambda _: reader.exhausted(), reading.wake, columns=columns)
        assert found == list(range(12))


def test_from_the_end_only_what_is_published_later_is_read_whoever_goes_on(
    tmp_path: Path,
) -> None:
    followed = Followed(tmp_path / "out")
    followed.publish(5, number=1)
    reading = Reading(followed, start="end")
    with closing(reading.owner()) as plugin:
        (name,) = plugin.partitions()
        reader = plugin.open(name, START)
        store_until(reading, lambda names: any(each.endswith("1") for each in names))
        followed.publish(3, number=2)
        followed.publish(0, number=3)
        assert read_until(reader, lambda all_: len(all_) == 3, reading.wake) == [5, 6, 7]
        cursor = reader.cursor(2)
        reader.close()
    followed.publish(2, writer=1)
    with closing(reading.owner()) as plugin:
        reader = plugin.open(name, cursor)
        found = read_until(reader, lambda all_: 9 in all_, reading.wake)
        assert found == [5, 6, 7, 8, 9][cursor.position :]
        followed.state = "completed"
        read_until(reader, lambda _: reader.exhausted(), reading.wake)


def test_a_job_that_has_completed_has_nothing_behind_its_end(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out", state="completed")
    followed.publish(5, number=1)
    reading = Reading(followed, start="end")
    with closing(reading.owner()) as plugin:
        (name,) = plugin.partitions()
        reader = plugin.open(name, START)
        assert read_until(reader, lambda _: reader.exhausted(), reading.wake) == []


def store_until(reading: Reading, wanted: Callable[[list[str]], bool]) -> None:
    """Until the journal has what is wanted."""
    for _ in range(READS_MAX):
        if wanted([name for name, _ in reading.store.list("")]):
            return
        reading.wake.wait(0.05)
    raise AssertionError("nothing came into the journal")


@pytest.mark.parametrize(
    "start", [StartAt(position=3), StartAt(time_ago="2 hours"), "2026-11-21T09:00:00Z"]
)
def test_a_place_that_parts_do_not_have_is_refused_by_its_option(
    tmp_path: Path, start: StartFrom
) -> None:
    assert not list(JobOptions(job="first", task="out", start_from=start).wrong())
    reading = Reading(Followed(tmp_path / "out"), start=start)
    with (
        closing(reading.owner()) as plugin,
        pytest.raises(UserError, match=r"option .startFrom. is .*; it can be beginning or end"),
    ):
        plugin.partitions()


def test_a_place_that_is_none_is_a_problem_of_its_option() -> None:
    (problem,) = JobOptions(job="first", task="out", start_from="latest").wrong()
    assert problem.path == "startFrom"


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=8),
    writers=st.lists(st.integers(0, 1), min_size=8, max_size=8),
    stops=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4),
    columns=st.booleans(),
)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_whoever_goes_on_from_any_cursor_reads_the_same_rows_at_the_same_positions(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    writers: list[int],
    stops: list[tuple[int, int]],
    columns: bool,
) -> None:
    followed = Followed(tmp_path_factory.mktemp("job") / "out")
    reading = Reading(followed, columns)
    rows: dict[int, int] = {}
    cursor = START
    parts = [
        (writers[:at].count(each), (sizes[at], each))
        for at, each in enumerate(writers[: len(sizes)])
    ]
    for number, (rows_more, kept) in enumerate([*stops, (10_000, 0)]):
        last = number == len(stops)
        for at, (size, writer) in parts[: len(parts) if last else 2]:
            followed.publish(size, writer, at)
        parts = parts[2:]
        followed.state = "completed" if last else "runs"
        with closing(reading.owner()) as plugin:
            reader = plugin.open("0", cursor)
            position, empty = cursor.position, 0
            while position < cursor.position + rows_more and not reader.exhausted():
                got = taken(reader, 3, columns)
                for value in got:
                    assert rows.setdefault(position, value) == value
                    position += 1
                empty = 0 if got else empty + 1
                if empty > (400 if last else 5):
                    break
                if not got:
                    reading.wake.wait(0.02)
                    reading.wake.clear()
            again = plugin.open("0", cursor)
            for at in range(cursor.position, position):
                (value,) = taken(again, 1, columns)
                assert rows[at] == value
            again.close()
            found = reader.cursor(max(cursor.position, position - kept))
            assert cursor.position <= found.position <= position
            cursor = Cursor(found.position, msgspec.json.decode(msgspec.json.encode(found.state)))
            reader.close()
    assert [rows[at] for at in sorted(rows)] == [rows[at] for at in range(len(rows))]
    assert sorted(rows.values()) == list(range(followed.number))


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    turns=st.lists(st.booleans(), max_size=20),
    form=st.sampled_from(["jsonl", "parquet"]),
    columns=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@example([3, 3], [True], "jsonl", False)
@example([3, 3], [True], "parquet", True)
def test_a_part_that_cannot_be_opened_or_read_now_is_the_next_one_still(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    turns: list[bool],
    form: str,
    columns: bool,
) -> None:
    followed = Followed(tmp_path_factory.mktemp("job") / "out", state="completed")
    for number, size in enumerate(sizes):
        followed.publish(size, number=number, form=form)
    reading = Reading(followed, columns)
    found: list[int] = []
    with closing(reading.owner()) as plugin, failing_files(turns):
        reader = plugin.open("0", START)
        for _ in range(READS_MAX):
            if reader.exhausted():
                break
            try:
                got = taken(reader, 3, columns)
            except Unavailable:
                # Whoever asks for a cursor now gets one that leads to the next row.
                assert reader.cursor(len(found)).position <= len(found)
                continue
            found += got
            if not got:
                reading.wake.wait(0.02)
                reading.wake.clear()
        reader.close()
    assert found == list(range(followed.number))


class Looking:
    """A feed without a journal."""

    def __init__(
        self,
        followed: Followed,
        cursor: Any = None,
        partitions: int = 1,
        mine: int = 0,
        start_from: StartFrom = "beginning",
    ) -> None:
        self.clock = ManualClock()
        made = replace(context(followed, MemoryBlobStore()), clock=self.clock)
        options = JobOptions(job="first", task="out", partitions=partitions, start_from=start_from)
        self.feed = PartsFeed(made, options, mine, cursor)
        self.cursor = cursor

    def parts(self) -> list[str]:
        self.clock.advance(1.0)
        content = self.feed.take(0, 0.0)
        if content is None:
            return []
        self.cursor = content.cursor
        self.feed.appended(content)
        return [each["path"].rpartition("/")[2] for run in content.runs for each in run]


def test_parts_of_a_version_before_are_not_taken_again_and_those_of_the_next_one_are(
    tmp_path: Path,
) -> None:
    followed = Followed(tmp_path / "out")
    followed.publish(1, job="first")
    followed.publish(1, job="stranger")
    looking = Looking(followed)
    assert looking.parts() == ["part-out--first--0-aaaaaaaaaaaa-000000.jsonl"]
    second = Followed(tmp_path / "elsewhere")
    second.publish(1, job="second")
    followed.paths = {"second": str(second.folder)}  # as when the first one is forgotten
    followed.publish(1, number=1, job="first")
    found = Looking(followed, looking.cursor)
    assert sorted(found.parts()) == [
        "part-out--first--0-aaaaaaaaaaaa-000001.jsonl",
        "part-out--second--0-aaaaaaaaaaaa-000000.jsonl",
    ]
    assert not found.parts()


@pytest.mark.parametrize("state", ["killed", "forgotten"])
def test_a_job_that_will_not_go_on_is_an_obstacle_once_all_is_read(
    tmp_path: Path, state: State
) -> None:
    followed = Followed(tmp_path / "out", state=state)
    followed.publish(1)
    looking = Looking(followed)
    assert looking.parts()
    assert not looking.feed.obstacle
    assert not looking.parts()
    assert "submit a job that upgrades it, or drain this one" in looking.feed.obstacle
    followed.state = "runs"
    assert not looking.parts()
    assert not looking.feed.obstacle


def test_a_reader_tells_the_obstacle_when_what_it_gave_is_complete(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out", state="killed")
    followed.publish(2)
    reading = Reading(followed)
    with closing(reading.owner()) as plugin:
        reader = plugin.open("0", START)
        assert read_until(reader, lambda all_: len(all_) == 2, reading.wake) == [0, 1]
        for _ in range(30):
            assert taken(reader, 1) == []
            reading.wake.wait(0.02)
        reader.cursor(2)
        with pytest.raises(Unavailable, match="was killed"):
            read_until(reader, lambda _: False, reading.wake)


def test_the_end_stays_the_end_when_the_job_is_forgotten(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out", state="completed")
    looking = Looking(followed)
    assert not looking.parts()
    assert looking.feed.ended()
    followed.state = "forgotten"
    assert Looking(followed, looking.cursor).feed.ended()


def test_a_job_that_nobody_knows_any_more_is_refused(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out", state="forgotten")
    followed.paths = {}
    with pytest.raises(UserError, match="read its parts with an input `files`"):
        Looking(followed).parts()


def test_a_job_that_would_follow_itself_is_refused(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out", paths={"follower": "x"})
    with pytest.raises(UserError, match="a job cannot follow itself"):
        Looking(followed).parts()


def test_a_folder_that_is_not_there_has_no_parts_until_the_job_has_completed(
    tmp_path: Path,
) -> None:
    followed = Followed(tmp_path / "out")
    followed.folder.rmdir()
    looking = Looking(followed)
    assert not looking.parts()
    followed.state = "completed"
    with pytest.raises(UserError, match="is not there"):
        looking.parts()


def test_each_part_belongs_to_one_partition(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(40):
        followed.publish(1, number=number)
    found = [Looking(followed, partitions=3, mine=mine).parts() for mine in range(3)]
    assert sorted(each for parts in found for each in parts) == sorted(
        each.name for each in followed.folder.iterdir()
    )
    assert all(found)
    assert {partition_of(f"/a/{each}", 3) for each in found[1]} == {1}


def part(number: int, writer: int = 0) -> str:
    return f"part-out--first--{WRITERS[writer]}-{number:06d}.jsonl"


@pytest.mark.parametrize("gone", [0, 1])
def test_a_part_that_is_gone_before_others_of_its_writer_is_named(
    tmp_path: Path, gone: int
) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(3):
        followed.publish(1, number=number)
    (followed.folder / part(gone)).unlink()

    with pytest.raises(StateError, match=rf"task 'work': part .*{part(gone)} of job first is gone"):
        Looking(followed).parts()


@pytest.mark.parametrize("kept", [0, 2])
def test_the_last_parts_of_a_job_that_has_completed_are_named_if_they_are_gone(
    tmp_path: Path, kept: int
) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(kept):
        followed.publish(1, number=number)
    looking = Looking(followed)
    looking.parts()
    followed.state, followed.last = "completed", {"first": [part(2)], "unknown": [part(9)]}

    with pytest.raises(StateError, match=rf"part .*{part(kept)} of job first is gone"):
        looking.parts()
    assert not looking.feed.ended()
    for number in range(kept, 3):
        followed.publish(1, number=number)
    assert looking.parts() == [part(number) for number in range(kept, 3)]


def test_parts_that_were_read_may_be_removed(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(3):
        followed.publish(1, number=number)
    looking = Looking(followed)
    assert len(looking.parts()) == 3
    for number in range(3):
        (followed.folder / part(number)).unlink()
    followed.publish(1, number=3)
    assert looking.parts() == [part(3)]
    followed.state, followed.last = "completed", {"first": [part(3)]}
    assert not looking.parts()
    assert looking.feed.ended()


def test_who_begins_at_the_end_misses_no_part_of_before(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out")
    followed.publish(1, number=4)
    for partition in range(3):
        looking = Looking(followed, partitions=3, mine=partition, start_from="end")
        assert looking.parts() == []
        assert Looking(followed, looking.cursor, 3, partition, "end").parts() == []
    followed.publish(1, number=6)
    mine = partition_of(part(5), 3)
    with pytest.raises(StateError, match=part(5)):
        Looking(followed, looking.cursor, 3, mine, "end").parts()


def test_each_part_that_is_gone_is_missed_by_its_own_partition(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(3):
        followed.publish(1, number=number)
    (followed.folder / part(1)).unlink()
    missed = []
    for mine in range(3):
        try:
            Looking(followed, partitions=3, mine=mine).parts()
        except StateError:
            missed.append(mine)
    assert missed == [partition_of(part(1), 3)]


def test_more_parts_than_a_chunk_holds_come_in_several(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "out")
    for number in range(PARTS_MAX + 2):
        (followed.folder / f"part-out--first--{WRITERS[0]}-{number:06d}.jsonl").touch()
    looking = Looking(followed)
    assert [len(looking.parts()) for _ in range(3)] == [PARTS_MAX, 2, 0]
    assert (
        msgspec.convert(looking.cursor, PartsCursor).marks[f"out--first--{WRITERS[0]}"].parts
        == 1_002
    )
