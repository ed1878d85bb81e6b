"""What windows hold between micro-batches can be asked for: as of the last commit, by group, range,
time and page."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.support.clients.one_job import OneJob
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.spark.inputs import feed
from tests.support.spark.query import request_of, run_query
from tests.support.spark.stream import Worker

from onyx.client import stored_state
from onyx.client.query import StateReader
from onyx.client.stored_state import KeptStates
from onyx.client.window_view import Question, WindowView, asked_of
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId, PeerId
from onyx.keystate.selection import Selection
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings, StateSettings
from onyx.spark.driver.committed import Committed, commit
from onyx.spark.driver.request import QueryBatch
from onyx.state.location import check_shared, open_store

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.functions"
KEYED = "tests.support.spark.keyed_functions"
PROCESSORS = "tests.support.spark.processors"
JOB = JobId("sums-1")
WIDTH, A_BATCH, PARTITIONS = 10, 9, "ab"
EVENTS = {
    at: [{"key": "xyz"[n % 3], "at": 3 * n + (n % 2), "v": n} for n in range(40)]
    for at in PARTITIONS
}
FIXED = {"id": "w", "type": "fixed", "range": [WIDTH, "milliseconds"], "aggregation": ["sum", "v"],
         "windowKey": "at"}  # fmt: skip
ALL_OF_IT = {"id": "ever", "type": "global", "aggregation": "count"}
SELDOM = {"type": "segment", "threshold": [10**6, "elements"], "refinement": "accumulating",
          "emit": f"{FUNCTIONS}:extent"}  # fmt: skip
SPEC: dict[str, Any] = {
    "engine": "spark",
    "guarantee": "exactly-once",
    "workflow": [["read", "fold"], ["read", "count"], ["fold", "write"], ["count", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": f"{INPUTS}:fed", "watermarkKey": "at",
         "allowedDisorder": [2, "milliseconds"]},
        {"name": "fold", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
        {"name": "count", "type": "reduce"},
        {"name": "write", "type": "output", "plugin": "files",
         "options": {"path": "out", "format": "jsonl"}},
    ],
    "windows": [{**FIXED, "task": "fold"}, {**ALL_OF_IT, "task": "count"}],
    "triggers": [{**SELDOM, "windowId": each} for each in ("w", "ever")],
}  # fmt: skip

JOINED = {
    **SPEC,
    "workflow": [["read", "both"], ["again", "both"], ["both", "write"]],
    "catalog": [
        SPEC["catalog"][0],
        {**SPEC["catalog"][0], "name": "again"},
        {"name": "both", "type": "join",
         "within": {"before": [100, "seconds"], "after": [100, "seconds"]},
         "left": {"task": "read", "key": "key", "at": "at"},
         "right": {"task": "again", "key": "key", "at": "at", "prefix": "r_"}},
        SPEC["catalog"][-1],
    ],
    "windows": [],
    "triggers": [],
}  # fmt: skip

TRACKED = {
    **SPEC,
    "workflow": [["read", "track"], ["track", "write"]],
    "catalog": [
        SPEC["catalog"][0],
        {"name": "track", "type": "function", "fn": f"{KEYED}:counted", "batchFormat": "arrow",
         "groupByKey": "key", "fluxPolicy": "continue", "state": {"count": "value[int]"}},
        SPEC["catalog"][-1],
    ],
    "windows": [],
    "triggers": [],
}  # fmt: skip

KEPT = {
    **SPEC,
    "workflow": [["read", each] for each in ("fold", "count", "track", "tally")],
    "catalog": [
        *SPEC["catalog"][:-1],
        TRACKED["catalog"][1],
        {"name": "tally", "type": "function", "fn": f"{KEYED}:tallied", "groupByKey": "key",
         "fluxPolicy": "continue", "state": {"count": "value[int]"}},
    ],
    "triggers": [],
}  # fmt: skip
"""Nothing goes anywhere: what is asked for is what the tasks keep."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", A_BATCH)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)


def parsed(spec: dict[str, Any]) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "sums"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


class Stream:
    """A job whose micro-batches are committed in a log."""

    def __init__(self, folder: Path, spec: dict[str, Any] = SPEC) -> None:
        self.log = MemoryLog()
        spec = copy.deepcopy(spec)
        for entry in spec["catalog"]:
            if entry["type"] == "input":
                entry["options"] = {"feed": str(folder / "feed")}
        feed(folder / "feed", EVENTS, 40)
        self._worker = Worker(parsed(spec), folder, (INPUTS, FUNCTIONS, KEYED, PROCESSORS))
        self._worker.then = self.commit
        self._version: int | None = None
        location = self._worker.request.state_location
        kept = KeptStates(Settings(data_dir=str(folder), state=StateSettings(url=location)))
        self._job = job = OneJob(self.log, JOB, self._worker.job, {"spark": ["p"]})
        clock = ManualClock()
        self._reader = StateReader(job, "t", nobody, kept, clock, clock.advance)
        check_shared(open_store(location), job.log, JOB, PeerId("p"), location)

    def commit(self, batch: QueryBatch) -> None:
        new = Committed("x", {}, {}, batch.number, batch.positions, batch.held, over=False)
        _, self._version = commit(self.log.client(), JOB, new, self._version)

    def upgrades(self, old: str) -> None:
        """The log says that it has come in the place of another job."""
        known = self._job._replica
        record = structs.replace(known.records[JOB], upgrades=JobId(old))
        self._job._replica = structs.replace(known, records=known.records.set(JOB, record))

    def end(self) -> None:
        """The job has drained: its last commit holds nothing."""
        over = Committed("x", {}, {}, len(self._worker.batches))
        commit(self.log.client(), JOB, over, self._version)

    def run(self, batches: int) -> None:
        """So many micro-batches, and one that is not committed."""
        last = len(self._worker.batches) + batches
        self._worker.dies = lambda batch: "behind it" if batch.number == last else ""
        self._worker.run()

    def ask(self, window: str = "w", extents_max: int = 100, **select: Any) -> WindowView:
        question = Question(JOB, window, Selection(**select), extents_max, durable=True)
        return self._reader.read(question, timeout_s=2.0)

    def pages(self, extents_max: int) -> list[WindowView]:
        return list(self._reader.pages(Question(JOB, "w", extents_max=extents_max)))


def nobody(*_: object) -> Any:
    raise AssertionError("no peer has the state")


def sums(batches: int) -> dict[tuple[str, int], int]:
    """What the window holds behind so many micro-batches."""
    found: Counter[Any] = Counter()
    for each in chain(*(part[: batches * A_BATCH] for part in EVENTS.values())):
        found[each["key"], each["at"] // WIDTH * WIDTH] += each["v"]
    return dict(sorted(found.items()))


def states(view: WindowView) -> dict[tuple[str, int], int]:
    return {(each.group, int(each.lower)): each.state for each in view.extents}


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_nothing_is_held_before_the_first_commit(stream: Stream) -> None:
    assert stream.ask().extents == ()


def test_a_job_that_has_not_carried_over_the_state_of_another_does_not_say_that_it_has_none(
    stream: Stream,
) -> None:
    stream.upgrades("old-1")
    with pytest.raises(Unavailable, match="has not carried over the state of old-1 yet"):
        stream.ask()
    stream.run(1)
    assert states(stream.ask()) == sums(1)


def test_what_a_job_holds_is_durable_whatever_its_guarantee() -> None:
    job = parsed({**SPEC, "guarantee": "at-most-once"})
    assert asked_of(job, Question(JOB, "w", durable=True)).name == "w"


def test_the_answer_is_what_was_committed_last(stream: Stream) -> None:
    for batches in (1, 2, 3):
        stream.run(1)
        assert states(stream.ask()) == sums(batches)
        (one,) = stream.ask("ever").extents
        assert (one.group, one.state) == (None, batches * A_BATCH * len(PARTITIONS))


def test_what_is_asked_for_is_chosen_as_on_peers(stream: Stream) -> None:
    stream.run(3)
    all_of_it = sums(3)
    of_x = {each: state for each, state in all_of_it.items() if each[0] == "x"}
    assert states(stream.ask(key="x")) == of_x
    assert states(stream.ask(prefix="x")) == of_x
    assert states(stream.ask(key_from="y")) == {
        each: state for each, state in all_of_it.items() if each[0] >= "y"
    }
    assert states(stream.ask(time_from=20, time_to=30)) == {
        each: state for each, state in all_of_it.items() if each[1] == 20
    }
    assert stream.ask(key="nobody").extents == ()


def test_pages_go_on_behind_each_other(stream: Stream) -> None:
    stream.run(4)
    pages = stream.pages(5)
    assert [len(page.extents) for page in pages[:-1]] == [5] * (len(pages) - 1)
    assert list(chain.from_iterable(map(states, pages))) == list(sums(4))


def test_one_group_is_read_of_its_bucket_alone(stream: Stream, tmp_path: Path) -> None:
    stream.run(3)
    chunks = sorted((tmp_path / "state").glob("**/buckets.spark/fold/*"))
    buckets = {each.name.split("-")[1] for each in chunks}
    assert len(buckets) > 1
    found = {}
    for bucket in buckets:
        away = [each for each in chunks if each.name.split("-")[1] != bucket]
        for each in away:
            each.rename(each.with_suffix(".away"))
        found |= answered(stream, "xyz")
        for each in away:
            each.with_suffix(".away").rename(each)
    assert found == sums(3)


def answered(stream: Stream, keys: str) -> dict[tuple[str, int], int]:
    found = {}
    for key in keys:
        try:
            found |= states(stream.ask(key=key))
        except Unavailable:
            continue
    return found


def test_a_chunk_that_a_newer_commit_has_replaced_is_read_there(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream.run(2)
    raced = []

    def meanwhile(before: Callable[..., Any], *args: Any) -> Any:
        """The commit is read; then a newer one replaces all that it names."""
        found = before(*args)
        if not raced:
            old = set((tmp_path / "state").glob("**/buckets.spark/fold/*"))
            raced.append(old)
            monkeypatch.setattr("onyx.spark_query.folding.share_state.CHUNKS_MAX", 0)
            stream.run(1)
            for each in old:
                each.unlink()
        return found

    before = stored_state.committed
    monkeypatch.setattr(stored_state, "committed", lambda *args: meanwhile(before, *args))
    assert states(stream.ask()) == sums(3)
    assert raced


def test_a_chunk_that_is_lost_is_told(stream: Stream, tmp_path: Path) -> None:
    stream.run(2)
    for each in (tmp_path / "state").glob("**/buckets.spark/fold/*"):
        each.unlink()
    with pytest.raises(Unavailable, match=r"buckets\.spark/fold/.* is gone: .*or it is lost"):
        stream.ask()


def test_a_job_that_has_drained_holds_nothing(stream: Stream) -> None:
    stream.run(2)
    stream.end()
    assert stream.ask().extents == stream.ask("ever").extents == ()


def test_a_query_over_inputs_with_an_end_has_no_state_to_show() -> None:
    spec = copy.deepcopy(SPEC)
    spec["catalog"][0] |= {"plugin": "files", "options": {"path": "in", "format": "jsonl"}}
    with pytest.raises(UserError, match="one query of Spark, because all its inputs have an end"):
        asked_of(parsed(spec), Question(JOB, "w"))


def test_rows_of_a_join_are_those_that_were_committed_last(tmp_path: Path) -> None:
    stream = Stream(tmp_path, JOINED)
    for batches in (1, 2, 3):
        stream.run(1)
        read = sorted(
            (each["key"], each["at"], each["v"])
            for part in EVENTS.values()
            for each in part[: batches * A_BATCH]
        )
        extents = stream.ask("both").extents
        for side in ("left", "right"):
            rows = [(each, row) for each in extents for row in each.state[side]]
            assert sorted((each.group, each.lower, row["v"]) for each, row in rows) == read
        of_x = stream.ask("both", key="x", time_to=9).extents
        assert [each for each in extents if each.group == "x" and each.lower < 9] == list(of_x)


def test_states_of_functions_are_those_that_were_committed_last(tmp_path: Path) -> None:
    stream = Stream(tmp_path, TRACKED)
    for batches in (1, 2, 3):
        stream.run(1)
        read = [each["key"] for part in EVENTS.values() for each in part[: batches * A_BATCH]]
        found = {each.group: each.state for each in stream.ask("track.count").extents}
        assert found == Counter(read)
        assert [each.state for each in stream.ask("track.count", key="x").extents] == [found["x"]]


def test_tasks_that_only_keep_state_need_no_output(tmp_path: Path) -> None:
    stream = Stream(tmp_path, KEPT)
    for batches in (1, 2, 3):
        stream.run(1)
        read = [each["key"] for part in EVENTS.values() for each in part[: batches * A_BATCH]]
        assert states(stream.ask()) == sums(batches)
        assert [each.state for each in stream.ask("ever").extents] == [len(read)]
        for task in ("track", "tally"):
            found = {each.group: each.state for each in stream.ask(f"{task}.count").extents}
            assert found == Counter(read)


def test_a_query_in_which_nothing_goes_anywhere_ends_with_its_inputs(tmp_path: Path) -> None:
    spec = copy.deepcopy(KEPT)
    spec["catalog"][0] |= {"plugin": "sequence", "options": {"segments": EVENTS["a"]}}
    reply = run_query(request_of(parsed(spec), tmp_path, (KEYED,)))
    assert (reply.failure, reply.outputs) == (None, {})
    assert {reply.tasks[each].read for each in ("fold", "count", "track", "tally")} == {40}


@pytest.mark.parametrize("groups", [{"groupByKey": "key", "fluxPolicy": "continue"}, {}])
def test_what_processors_have_saved_is_what_was_committed_last(
    groups: dict[str, str], tmp_path: Path
) -> None:
    spec = copy.deepcopy(TRACKED)
    totals = {"name": "track", "type": "function", "processor": f"{PROCESSORS}:Columnar"}
    spec["catalog"][1] = {**totals, "batchFormat": "arrow", **groups}
    stream = Stream(tmp_path, spec)
    for batches in (1, 2, 3):
        stream.run(1)
        read = [each["key"] for part in EVENTS.values() for each in part[: batches * A_BATCH]]
        found = {each.group: each.state for each in stream.ask("track").extents}
        assert found == Counter(read)
        assert [each.state for each in stream.ask("track", key="x").extents] == [found["x"]]


def test_what_waits_in_an_inbox_is_no_state_that_is_asked_for(tmp_path: Path) -> None:
    spec = copy.deepcopy(TRACKED)
    named = {"name": "track", "type": "function", "processor": f"{PROCESSORS}:Waits"}
    spec["catalog"][1] = named
    stream = Stream(tmp_path, spec)
    stream.run(2)
    assert {each.group for each in stream.ask("track").extents} == {"taken"}
