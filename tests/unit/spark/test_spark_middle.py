"""A stage in the middle of a job without a JVM: bundles, runs of the stage, rows of its results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.clocks import ManualClock
from tests.support.failing_files import failing_files
from tests.support.jobs.plugin_context import plugin_context
from tests.support.patience import WAIT_S

from onyx.errors import Fenced, Unavailable, UserError, UserFunctionError
from onyx.plugins.options import check_options
from onyx.plugins.protocol import START, Cursor, PluginContext
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.middle.bundles import Bundle, Bundles
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import folder_of, request_of
from onyx.spark.middle.results import PARTITIONS, StageResults, first_needed
from onyx.spark.middle.spool import StageSpool
from onyx.storage.opening import location_of
from onyx.testing import check_input


class FakeSpark:
    """Writes a row for each part that it gets, in a file for each frame; may wait, and may fail."""

    def __init__(self, during: Callable[[int], None] = lambda run: None) -> None:
        self.requests: list[StageRequest] = []
        self._during = during

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        self.requests.append(request)
        self._during(len(self.requests))
        if not watch.wanted():
            raise Fenced("not wanted")
        target = Path(request.target)
        target.mkdir()
        for frame in request.frames:
            rows = [row for part in frame.parts for row in pq.read_table(part).to_pylist()]
            if rows:
                pq.write_table(pa.Table.from_pylist(rows), target / f"{frame.name}.parquet")
        (target / "_SUCCESS").touch()


class Task:
    """The output half of one peer, and its clock."""

    def __init__(
        self,
        folder: Path,
        spark: FakeSpark,
        upstream: tuple[str, ...] = ("read",),
        incarnation: str = "one",
        cursors: Callable[[], Sequence[Cursor]] = tuple,
        **options: Any,
    ) -> None:
        self.clock = ManualClock()
        self.runs: list[bool] = []
        self.context = context(folder, upstream, self.clock, incarnation)
        self.context = replace(
            self.context,
            stage_ended=lambda seconds, ended_well: self.runs.append(ended_well),
            cursors=cursors,
        )
        self.spool = StageSpool(self.context, read_options(folder, **options), spark)
        self.spool.lead(True)
        self.folder = folder_of(self.context, read_options(folder))

    def write(self, *rows: int, upstream: str = "read") -> None:
        """A part of these rows."""
        self.spool.choose(upstream)
        self.spool.write([{"n": row} for row in rows])
        self.spool.flush()

    def tick(self) -> None:
        if "is running" not in self.spool.doing:  # which takes no time
            self.clock.advance(10.0)
        self.spool.tick()

    def until(self, reached: Callable[[], Any]) -> None:
        """Tick until runs on the other thread have come so far."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            self.tick()
            if reached():
                return
            pause.wait(0.01)
        raise AssertionError("never reached")


def folder_below(task: Task, name: str) -> Path:
    """A folder in the place of a task."""
    assert task.folder.location.local is not None
    return task.folder.location.local / name


def read_options(folder: Path, **options: Any) -> MiddleOptions:
    read, problems = check_options({"path": str(folder / "bundles"), **options}, MiddleOptions)
    assert read is not None, problems
    return read


def context(
    folder: Path, upstream: tuple[str, ...], clock: ManualClock, incarnation: str = "one"
) -> PluginContext:
    def stage(*frames: Any, **named: Any) -> None:
        """Never called here."""

    made = plugin_context(
        {}, functions={"m:f": stage}, clock=clock, incarnation=incarnation, batch_format="arrow"
    )
    return replace(made, upstream=upstream, spark_stage="m:f")


def results(folder: Path) -> StageResults:
    return StageResults(context(folder, ("read",), ManualClock()), read_options(folder))


def rows(folder: Path) -> list[int]:
    """All that the input half gives."""
    source, found = results(folder), []
    for partition in source.partitions():
        reader = source.open(partition, START)
        while len(batch := reader.read_columns(2)):  # type: ignore[attr-defined]
            found += batch.column("n").to_pylist()
        assert reader.exhausted()
        reader.close()
    return sorted(found)


@pytest.fixture
def spark() -> FakeSpark:
    return FakeSpark()


def test_without_limits_there_is_one_bundle_which_ends_with_the_input(
    tmp_path: Path, spark: FakeSpark
) -> None:
    task = Task(tmp_path, spark)
    task.write(1, 2)
    task.write(3)
    task.tick()
    assert task.folder.bundle(1) is None
    task.spool.seal()
    task.until(lambda: task.folder.result(1))
    assert rows(tmp_path) == [1, 2, 3]
    assert [len(frame.parts) for frame in spark.requests[0].frames] == [2]
    task.until(lambda: task.runs == [True])
    assert list(folder_below(task, "parts").glob("*.parquet")) == []


@pytest.mark.parametrize("options", [{"bundleSegments": 2}, {"bundleSeconds": 5}])
def test_bundles_that_are_full_or_old_are_given_to_the_stage_one_after_the_other(
    tmp_path: Path, spark: FakeSpark, options: dict[str, Any]
) -> None:
    task = Task(tmp_path, spark, **options)
    task.write(1, 2)
    task.until(lambda: task.folder.result(1))
    task.write(3, 4)
    task.until(lambda: task.folder.result(2))
    task.spool.seal()
    task.until(lambda: task.folder.result(3))
    assert rows(tmp_path) == [1, 2, 3, 4]
    assert task.folder.result(3).last  # type: ignore[union-attr]
    assert len(spark.requests) == 2, "no stage runs over a bundle without a segment"


def test_a_peer_that_does_not_lead_makes_bundles_only_when_it_seals(
    tmp_path: Path, spark: FakeSpark
) -> None:
    task = Task(tmp_path, spark, bundleSegments=1)
    task.spool.lead(False)
    task.write(1)
    task.tick()
    assert task.folder.bundle(1) is None
    task.spool.seal()
    task.spool.seal()
    task.tick()
    assert task.folder.bundle(1) == Bundle(1, spooled(task), last=True)
    assert task.folder.bundle(2) is None
    assert spark.requests == []


def spooled(task: Task) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder_below(task, "parts").glob("*.parquet")))


def test_segments_of_several_tasks_are_frames_that_become_durable_in_order(
    tmp_path: Path, spark: FakeSpark
) -> None:
    task = Task(tmp_path, spark, ("count-up", "read"), rollSeconds=1_000)
    for upstream, row in (("read", 1), ("count-up", 2), ("read", 3)):
        task.spool.choose(upstream)
        task.spool.write([{"n": row}])
    assert task.spool.durable() == 0
    task.spool.flush()
    assert task.spool.durable() == 3
    task.spool.seal()
    task.until(lambda: task.folder.result(1))
    (request,) = spark.requests
    assert {frame.name: len(frame.parts) for frame in request.frames} == {"count_up": 1, "read": 1}
    assert rows(tmp_path) == [1, 2, 3]


def test_exactly_once_one_token_publishes_the_parts_of_all_frames(
    tmp_path: Path, spark: FakeSpark
) -> None:
    task = Task(tmp_path, spark, ("a", "b"))
    tokens: list[Any] = []

    def refuse(token: Any, segments: int) -> None:
        tokens.append((token, segments))
        raise Unavailable("nobody knows whether it is committed")

    task.spool.begin(refuse)
    with pytest.raises(Unavailable):
        task.write(1, upstream="a")
    assert spooled(task) == ()
    task.spool.choose("b")
    ((token, segments),) = tokens
    assert segments == 1
    other = Task(tmp_path, spark, ("a", "b"), incarnation="two")
    other.spool.finish(token)
    other.spool.finish(token)
    assert len(spooled(task)) == 1


def test_a_run_that_fails_is_repeated_and_kills_the_job_in_the_end(tmp_path: Path) -> None:
    def fail(run: int) -> None:
        raise UserFunctionError("ValueError: no")

    task = Task(tmp_path, spark := FakeSpark(fail))
    task.write(1)
    task.spool.seal()
    with pytest.raises(UserFunctionError, match=r"over bundle 1 failed 3 times.*ValueError: no"):
        task.until(lambda: False)
    assert len(spark.requests) == 3
    assert task.runs == [False] * 3


def test_a_server_that_is_replaced_is_waited_for(tmp_path: Path) -> None:
    def fail(run: int) -> None:
        if run <= 3:
            raise Unavailable("no server answers")

    task = Task(tmp_path, spark := FakeSpark(fail))
    task.write(1)
    task.spool.seal()
    task.until(lambda: len(task.runs) == 3)
    assert task.spool.doing.endswith("failed 3 times, last with: no server answers")
    task.until(lambda: len(task.runs) == 4)
    assert len(spark.requests) == 4
    assert task.folder.result(1) is not None
    assert task.runs == [False] * 3 + [True]
    assert task.spool.doing == ""


def test_what_a_worker_makes_after_another_one_is_dropped(tmp_path: Path) -> None:
    """It was frozen in the stage; meanwhile another one ran it."""
    goes_on, waits = threading.Event(), threading.Event()

    def during(run: int) -> None:
        if run == 1:
            waits.set()
            assert goes_on.wait(WAIT_S)

    frozen = Task(tmp_path, FakeSpark(during))
    frozen.write(1, 2)
    frozen.spool.seal()
    frozen.tick()
    assert waits.wait(WAIT_S)
    other = Task(tmp_path, FakeSpark(), incarnation="two")
    other.until(lambda: other.folder.result(1))
    before = other.folder.result(1)
    goes_on.set()
    folder = folder_below(frozen, "results")
    frozen.until(lambda: frozen.runs and [each.name for each in folder.iterdir()] == ["00000001"])
    assert frozen.folder.result(1) == before
    assert rows(tmp_path) == [1, 2]


def test_a_run_ends_when_its_task_does_and_leaves_no_result(tmp_path: Path) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def during(run: int) -> None:
        begun.set()
        assert goes_on.wait(WAIT_S)

    class Watched(FakeSpark):
        def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
            try:
                super().__call__(request, timeout_s, watch)
            finally:
                ended.set()

    task = Task(tmp_path, Watched(during))
    task.write(1)
    task.spool.seal()
    task.tick()
    assert begun.wait(WAIT_S)
    assert task.spool.doing == "Spark stage over bundle 1, attempt 1, is running"
    task.spool.close()
    goes_on.set()
    assert ended.wait(WAIT_S)
    assert task.folder.result(1) is None


def test_of_two_bundles_of_one_number_the_first_stands(tmp_path: Path) -> None:
    place = location_of(str(tmp_path / "task"))
    folder = Bundles(place, ManualClock())
    first = Bundle(1, (), last=True)
    assert folder.make(first) == first
    assert Bundles(place, ManualClock()).make(Bundle(1)) == first
    assert folder.waiting().ended


def test_a_frame_without_a_segment_needs_a_schema(tmp_path: Path, spark: FakeSpark) -> None:
    task = Task(tmp_path, spark, ("a", "b"))
    task.write(1, upstream="a")
    task.spool.seal()
    with pytest.raises(UserFunctionError, match=r"no segment of task b.*schemas: {b: "):
        task.until(lambda: False)
    known = Task(tmp_path, spark, ("a", "b"), incarnation="two", schemas={"b": "n BIGINT"})
    known.until(lambda: known.folder.result(1))
    assert rows(tmp_path) == [1]


def made_of(folder: Bundles, bundle: Bundle, *files: list[int]) -> None:
    """A bundle and its result, of files with these numbers."""
    bundle = folder.make(bundle)
    with folder.target(bundle) as target:
        written = Path(target.asked(StageRequest("m:f")).target)
        written.mkdir()
        for index, numbers in enumerate(files):
            pq.write_table(pa.table({"n": numbers}), written / f"{index}.parquet")
        folder.publish(target.settle("local"), bundle)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Three bundles, the second with an empty result."""
    task = Task(tmp_path, FakeSpark())
    for number, frames in enumerate(([[1, 2], [3]], [], [[4], [5, 6, 7], [8]]), 1):
        made_of(task.folder, Bundle(number, last=number == 3), *frames)
    return tmp_path


def test_rows_have_positions_that_never_change(made: Path) -> None:
    """By the rules of all inputs: read anew from any cursor, in batches of any size."""
    partitions: dict[str, list[dict[str, Any]]] = {str(n): [] for n in range(PARTITIONS)}
    for name, numbers in {"1": [1, 2], "2": [3], "3": [4], "4": [5, 6, 7], "5": [8]}.items():
        partitions[name] = [{"n": number} for number in numbers]

    def dicts() -> StageResults:
        plain = replace(context(made, ("read",), ManualClock()), batch_format="dicts")
        return StageResults(plain, read_options(made))

    assert check_input(dicts, partitions) == partitions


@pytest.mark.parametrize("turns", [[True], [False, True], [True, False, True, True]])
def test_a_file_of_a_result_that_cannot_be_opened_now_is_the_next_one_still(
    made: Path, turns: list[bool]
) -> None:
    reader = results(made).open("4", START)
    found: list[int] = []
    with failing_files(turns):
        while not reader.exhausted():
            try:
                found += reader.read_columns(2).column("n").to_pylist()  # type: ignore[attr-defined]
            except Unavailable:
                assert not reader.exhausted()
    reader.close()
    assert found == [5, 6, 7]


def test_a_partition_ends_behind_the_last_bundle_and_not_before(tmp_path: Path) -> None:
    clock = ManualClock()
    source = StageResults(context(tmp_path, ("read",), clock), read_options(tmp_path))
    folder = folder_of(context(tmp_path, ("read",), clock), read_options(tmp_path))
    reader = source.open("1", START)
    for number in (1, PARTITIONS + 1):
        assert reader.read_columns(10) == []  # type: ignore[attr-defined]
        assert not reader.exhausted()
        for each in range(1 if number == 1 else 2, number + 1):
            made_of(folder, Bundle(each, last=each > PARTITIONS), [each])
        clock.advance(1.0)
        batch = reader.read_columns(10)  # type: ignore[attr-defined]
        assert batch.column("n").to_pylist() == [number]
    assert reader.exhausted()
    assert reader.cursor(0) == Cursor(0, [1, 0])
    assert reader.cursor(1) == Cursor(1, [9, 1])
    reader.close()


def published(folder: Bundles, first: int, last: int) -> None:
    """Results of these bundles, a row each."""
    for number in range(first, last + 1):
        made_of(folder, Bundle(number), [number])


def test_a_result_loses_its_rows_when_all_partitions_are_behind_it(
    tmp_path: Path, spark: FakeSpark
) -> None:
    cursors = [Cursor(2, [3 + number, 2]) for number in range(PARTITIONS)]
    task = Task(tmp_path, spark, cursors=lambda: cursors, bundleSegments=1)
    published(task.folder, 1, 9)
    task.write(10)
    task.until(lambda: task.folder.result(10))
    kept = folder_below(task, "results")
    task.until(lambda: not list(kept.glob("00000002/*/*.parquet")))
    assert sorted(each.parent.parent.name for each in kept.glob("*/*/*.parquet")) == [
        f"{number:08d}" for number in range(3, 11)
    ]
    other = Task(tmp_path, FakeSpark(), incarnation="two", cursors=lambda: cursors)
    other.tick()
    assert other.folder.waiting().number == 11
    assert len(spark.requests) == 1
    with pytest.raises(Unavailable, match="is gone, because all of its rows are complete"):
        results(tmp_path).open("1", START).read(9)


@pytest.mark.parametrize(
    ("cursors", "first"),
    [
        ([], 1),
        ([Cursor(5, [7, 5])] * (PARTITIONS - 1), 1),
        ([*[Cursor(5, [7, 5])] * (PARTITIONS - 1), START], 1),
        ([*[Cursor(5, [7, 5])] * (PARTITIONS - 1), Cursor(1, [4, 0])], 4),
    ],
)
def test_a_result_is_needed_until_every_partition_has_passed_it(
    cursors: list[Cursor], first: int
) -> None:
    assert first_needed(cursors) == first


@pytest.mark.parametrize(
    ("upstream", "function", "options", "expected"),
    [
        (("a", "b"), lambda a: None, {}, "cannot be called with a, b"),
        (("a",), lambda: None, {}, "cannot be called with one frame: too many"),
        (("a",), lambda a, b: None, {}, "missing a required argument: 'b'"),
        (("a-b", "a_b"), lambda a_b: None, {}, "tasks a-b and a_b upstream would both be"),
        (("a",), lambda a: None, {"schemas": {"b": "n INT"}}, "'b', which is no task upstream"),
        (("a", "b"), lambda a, b: None, {"stageParams": {"b": 1}}, "'b' is both a frame and"),
    ],
)
def test_a_stage_that_cannot_be_called_is_refused_when_the_task_is_built(
    tmp_path: Path,
    upstream: tuple[str, ...],
    function: Callable[..., None],
    options: dict[str, Any],
    expected: str,
) -> None:
    made = plugin_context({}, functions={"m:f": function})
    made = replace(made, upstream=upstream, spark_stage="m:f")
    with pytest.raises(UserError, match=expected):
        request_of(made, read_options(tmp_path, **options))
