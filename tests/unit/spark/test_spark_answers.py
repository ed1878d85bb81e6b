"""Windows by Spark are asked about while peers work on them: out of the files that the state log
names, within bounds, whatever is removed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.clients.one_job import OneJob
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3_server import S3Server
from tests.support.spark.windows import by_spark

from onyx.client.query import StateReader
from onyx.client.stored_state import KeptStates
from onyx.client.window_view import Question, WindowView, asked_of
from onyx.errors import Unavailable, UserError
from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.ids import JobId, PeerId
from onyx.keystate.groups import hashable_keys
from onyx.keystate.selection import Selection
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings, StateSettings
from onyx.spark.windows import answers
from onyx.spark.windows.answers import AskedWindow
from onyx.spark.windows.spool import Spool, spool_of
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.location import check_shared, open_store
from onyx.state.recovery import recover
from onyx.storage.opening import location_of
from onyx.windows.compile import compile_windows
from onyx.windows.task_windows import TaskWindows

JOB = JobId("sums-1")
FIXED = {"type": "fixed", "range": [10, "elements"], "aggregation": ["sum", "v"]}
SESSIONS = {"type": "session", "timeoutGap": [5, "elements"], "range": None}
SPEC: dict[str, Any] = {
    "guarantee": "exactly-once",
    "workflow": [["read", "fold"], ["fold", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "watermarkKey": "at",
         "options": {"segments": 1}},
        {"name": "fold", "type": "reduce", "groupByKey": "k", "fluxPolicy": "continue"},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ],
    "windows": [{"id": "w", "task": "fold", "engine": "spark", "windowKey": "at", **FIXED}],
    "triggers": [{"windowId": "w", "type": "watermark", "refinement": "accumulating",
                  "emit": "tests.support.spark.functions:extent"}],
}  # fmt: skip


def parsed(**window: Any) -> Job:
    declared = {**SPEC["windows"][0], **window}
    windows = [{key: each for key, each in declared.items() if each is not None}]
    spec = {**SPEC, "windows": windows}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "sums"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


class Running:
    """A peer with the windows of the task and its state log; and whoever asks."""

    def __init__(self, folder: Path, **window: Any) -> None:
        self.job = parsed(**window)
        location = str(folder / "state")
        store = open_store(location)
        client = OneJob(MemoryLog(), JOB, self.job, {"fold": ["p"]})
        check_shared(store, client.log, JOB, PeerId("p"), location)
        self.settings = StateSettings(url=location)
        self.folder = spool_of(store, JOB, "fold")
        self.path = folder / "state" / JOB / "windows.spark" / "fold"
        self.log = recover(store, JOB, "fold", 1, 0, range(SHARDS), self.settings).log
        compiled = compile_windows(self.job, "fold", lambda name: lambda *_: None)
        assert compiled is not None
        made = by_spark(self.path)
        self.windows = TaskWindows(compiled, shard_of, make_elsewhere=made)
        self._clock = ManualClock()
        self.waited: Callable[[], object] = lambda: None
        kept = KeptStates(Settings(data_dir=str(folder), state=self.settings))
        self._reader = StateReader(client, "t", nobody, kept, self._clock, self._pass)

    def add(self, *rows: tuple[Any, int, Any]) -> None:
        """Segments of a key, an element and a value; and a chunk behind them."""
        segments = [{"k": key, "at": at, "v": value} for key, at, value in rows]
        self.windows.add(segments, hashable_keys([key for key, _, _ in rows]), 0)
        self.chunk()

    def chunk(self) -> None:
        records, written = self.windows.take_changes(), self.windows.take_files()
        for each in written:
            each.write()
        self.log.append(Chunk({shard: ShardChange(mine) for shard, mine in records.items()}))
        for each in written:
            each.remove()

    def advance(self, watermark: int) -> None:
        for _ in self.windows.advance(watermark):
            self.chunk()
        self.chunk()

    def ask(self, extents_max: int = 100, **select: Any) -> WindowView:
        question = Question(JOB, "w", Selection(**select), extents_max, durable=True)
        return self._reader.read(question, timeout_s=2.0)

    def pages(self, extents_max: int) -> Iterable[WindowView]:
        return self._reader.pages(Question(JOB, "w", extents_max=extents_max))

    def _pass(self, seconds: float) -> None:
        self.waited()
        self._clock.advance(seconds)


def nobody(*_: object) -> Any:
    raise AssertionError("no peer is asked")


def states(view: WindowView) -> dict[tuple[Any, float], Any]:
    return {(each.group, each.lower): each.state for each in view.extents}


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_a_running_job_answers_as_of_its_last_chunk(running: Running) -> None:
    assert states(running.ask()) == {}
    running.add(("a", 1, 5), ("b", 2, 7), ("a", 12, 1))
    assert states(running.ask()) == {("a", 0): 5, ("a", 10): 1, ("b", 0): 7}
    running.windows.add([{"k": "a", "at": 3, "v": 1}], ["a"], 0)
    assert states(running.ask(key="a")) == {("a", 0): 5, ("a", 10): 1}, "no chunk has it"
    running.chunk()
    running.advance(15)
    running.add(("a", 13, 4))
    assert states(running.ask(key="a")) == {("a", 0): 6, ("a", 10): 5}
    assert states(running.ask(time_from=10)) == {("a", 10): 5}


def test_one_group_is_read_of_files_alone_that_have_its_shard(running: Running) -> None:
    keys = ["a", "b", "c", "d"]
    assert len({shard_of(key) for key in keys}) == len(keys)
    for number, key in enumerate(keys):
        running.add((key, 1, number))
    for file in running.path.glob("p-*"):
        file.write_bytes(b"damaged")
    assert running.ask(key="nobody").extents == ()
    with pytest.raises(UserError, match="is no Parquet file"):
        running.ask(key="a")


def test_a_file_that_is_gone_is_looked_for_in_newer_records(running: Running) -> None:
    running.add(("a", 1, 5), ("b", 2, 7))
    pages = iter(running.pages(1))
    assert states(next(pages)) == {("a", 0): 5}
    assert states(next(pages)) == {("b", 0): 7}, "of the first reading"
    away = [file.rename(file.with_suffix(".away")) for file in running.path.glob("p-*")]
    running.waited = lambda: [file.rename(file.with_suffix(".parquet")) for file in away]
    assert states(running.ask()) == {("a", 0): 5, ("b", 0): 7}


def test_a_file_that_is_lost_is_told(running: Running) -> None:
    running.add(("a", 1, 5))
    for file in running.path.glob("p-*"):
        file.unlink()
    with pytest.raises(Unavailable, match=r"p-\w+\.parquet is gone"):
        running.ask()


def asked(running: Running, *rows: Any, **limits: int) -> AskedWindow:
    running.add(*rows)
    compiled = compile_windows(replace(running.job, triggers=()), "fold", lambda name: nobody)
    assert compiled is not None
    one = AskedWindow(compiled.windows[0], running.folder, shard_of, **limits)
    for shard in range(SHARDS):
        one.restore(shard, running.windows.snapshot(shard))
    return one


def test_more_rows_than_one_question_may_read_are_refused(running: Running) -> None:
    rows = [(n, n, 1) for n in range(30)]
    one = asked(running, *rows, rows_max=10)
    with pytest.raises(UserError, match=r"more than 10 rows in files .* ask for a range of time"):
        one.query(Selection(), 100)


def test_more_states_than_one_question_may_hold_are_refused(running: Running) -> None:
    rows = [(f"key {n}", 0, 1) for n in range(2_000)]
    one = asked(running, *rows, held_bytes_max=20_000)
    with pytest.raises(UserError, match=r"more than 20,000 bytes .* ask for one group, a range of"):
        one.query(Selection(), 10_000)
    assert [each.state for each in one.query(Selection(key="key 7"), 10)] == [1]


def test_rows_that_merge_take_no_more_room_than_their_states(running: Running) -> None:
    one = asked(running, *[(f"key {n % 3}", 0, 1) for n in range(5_000)], held_bytes_max=4_000)
    running.add()
    assert [each.state for each in one.query(Selection(), 10)] == [1667, 1667, 1666]


def test_sessions_take_room_each(tmp_path: Path) -> None:
    rows = [(f"key {n % 20}", n // 20 * 10, 1) for n in range(2_000)]
    one = asked(Running(tmp_path, **SESSIONS), *rows, held_bytes_max=20_000)
    with pytest.raises(UserError, match=r"more than 20,000 bytes"):
        one.query(Selection(), 10_000)
    assert len(one.query(Selection(key="key 7"), 1_000)) == 100


def test_row_groups_without_the_number_are_not_read(tmp_path: Path) -> None:
    folder = Spool(location_of(str(tmp_path)))
    folder.write("p-1", pa.table({"key_int": pa.array(range(100))}))
    reader = answers.AnswerReader(folder, rows_max=100)
    path = folder.path("p-1")
    assert [each.num_rows for each in reader.batches(path, {"key_int": (5, 5)})] == [100]
    assert list(reader.batches(path, {"key_int": (100, 200)})) == []


def test_files_of_an_object_store_are_read_and_found_gone(
    fake_s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_s3.environment.items():
        monkeypatch.setenv(name, value)
    folder = Spool(location_of(f"{ObjectStore(fake_s3).url}/some/location"))
    folder.write("p-1", pa.table({"key_int": pa.array(range(100))}))
    reader, path = answers.AnswerReader(folder), folder.path("p-1")
    assert [each.num_rows for each in reader.batches(path, {})] == [100]
    folder.remove("p-1")
    for gone in (path, folder.path("r-1")):
        with pytest.raises(Unavailable, match="is gone: a newer one is there"):
            list(reader.batches(gone, {}))


def test_a_sum_beyond_64_bits_is_shown_as_peers_show_it(running: Running) -> None:
    large = 2**63 - 1
    one = asked(running, ("a", 0, large), ("a", 1, large), ("a", 2, large), ("b", 0, large))
    found = one.query(Selection(), 10)
    assert [each.state for each in found] == [Decimal(3 * large), large]


def test_sessions_with_keys_are_refused_by_key() -> None:
    job = parsed(**SESSIONS, sessionKey="s")
    with pytest.raises(UserError, match="has a sessionKey and engine: spark"):
        asked_of(job, Question(JOB, "w"))


def test_what_is_held_has_a_limit_in_bytes() -> None:
    assert answers.HELD_BYTES_MAX == 64 * 1024 * 1024
