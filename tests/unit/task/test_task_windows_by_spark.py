"""Tasks with windows by Spark on the bench: what they emit, through crashes, rescaling and stages
that fail. Stages are carried out by Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench
from tests.support.servers.object_stores import ObjectStore
from tests.support.spark.windows import run_plan

from onyx.errors import Blocked, Unavailable, UserFunctionError
from onyx.plugins.attempts import AWAY_S
from onyx.settings import Settings, StateSettings, TaskSettings
from onyx.spark.child.request import StageRequest
from onyx.state.location import open_store

WORDS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]
EXPECTED = Counter(segment["word"] for segment in WORDS)


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {"word": state_event["group_key"], "from": state_event["lower_bound"], "count": state}


def spec(window: dict[str, Any], **trigger: Any) -> dict[str, Any]:
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "watermarkKey": "time", "options": {"segments": WORDS, "partitions": 2}},
            {"name": "count", "type": "reduce", "batchSize": 5, "groupByKey": "word",
             "minPeers": 1, "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
        "windows": [{"id": "words", "task": "count", "engine": "spark", **window}],
        "triggers": [{"windowId": "words", "emit": "m:emitted", **trigger}],
    }  # fmt: skip


GLOBAL = spec({"type": "global", "aggregation": "count"}, type="timer", period=[1, "hour"],
              refinement="accumulating")  # fmt: skip
MINUTES = spec(
    {"type": "fixed", "aggregation": "count", "windowKey": "time", "range": [10, "seconds"]},
    type="watermark", refinement="discarding",
)  # fmt: skip
SESSIONS = spec(
    {"type": "session", "aggregation": "count", "windowKey": "time", "timeoutGap": [1, "second"]},
    type="watermark", refinement="discarding",
)  # fmt: skip


def bench(folder: Any, job: dict[str, Any], peers: int, page: int = 10_000) -> Bench:
    state = StateSettings(url=str(folder), firings_page_max=page)
    settings = replace(Settings(), state=state)
    return Bench(job, {"m:emitted": emitted}, peers={"count": peers}, settings=settings)


def by_extent(made: Bench) -> Counter[Any]:
    return Counter((each["word"], each["from"], each["count"]) for each in made.written("write"))


def runs(numbers: list[int]) -> list[list[int]]:
    """Numbers that follow each other."""
    found: list[list[int]] = []
    for number in numbers:
        if not found or number > found[-1][-1] + 1:
            found.append([])
        found[-1].append(number)
    return found


WANTED = Counter(
    (word, first, count)
    for (word, first), count in Counter(
        (each["word"], each["time"] // 10_000 * 10_000) for each in WORDS
    ).items()
)
IN_SESSIONS = Counter(
    (word, run[0] * 1_000, len(run))
    for word in EXPECTED
    for run in runs([each["n"] for each in WORDS if each["word"] == word])
)


@pytest.mark.parametrize("peers", [1, 3])
def test_every_group_and_extent_is_emitted_once(tmp_path: Any, peers: int) -> None:
    made = bench(tmp_path, MINUTES, peers)
    made.settle()
    assert made.completed
    assert by_extent(made) == WANTED


@pytest.mark.parametrize(("job", "wanted"), [(MINUTES, WANTED), (SESSIONS, IN_SESSIONS)])
def test_no_file_is_left_that_nobody_needs(tmp_path: Any, job: Any, wanted: Any) -> None:
    job = {**job, "triggers": [{**job["triggers"][0], "postEvictor": ["all"]}]}
    made = bench(tmp_path, job, 1)
    made.settle()
    assert by_extent(made) == wanted
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("job", [GLOBAL, MINUTES], ids=["global", "fixed"])
@pytest.mark.parametrize("evicts", [False, True])
def test_results_say_shards_where_they_are_read_again(
    tmp_path: Any, job: Any, evicts: bool
) -> None:
    evictor = {"postEvictor": ["all"] if evicts else ["none"]}
    made = bench(tmp_path, {**job, "triggers": [{**job["triggers"][0], **evictor}]}, 2)
    found: list[bool] = []

    def runner(request: StageRequest, *others: Any) -> None:
        found.append(request.params["plan"]["sharded"])
        run_plan(request, *others)

    made.stage_runner = runner
    made.settle()
    assert made.completed
    assert set(found) == {not evicts}


@pytest.mark.short(4)
@pytest.mark.parametrize("rounds", some_of(range(0, 120, 9)))
@pytest.mark.parametrize("job", [GLOBAL, MINUTES, SESSIONS], ids=["global", "fixed", "session"])
def test_counts_are_exact_whenever_a_peer_dies(tmp_path: Any, job: Any, rounds: int) -> None:
    made = bench(tmp_path, job, 2, page=2)
    for _ in range(rounds):
        made.round()
    made.crash(made.task("count", rounds % 2))
    made.settle()
    assert made.completed
    if job is MINUTES:
        assert by_extent(made) == WANTED
    elif job is SESSIONS:  # while it goes on, outputs get emissions again that were not acked
        assert set(by_extent(made)) == set(IN_SESSIONS)
    else:
        assert Counter({each["word"]: each["count"] for each in made.written("write")}) == EXPECTED
        assert len(made.written("write")) == len(EXPECTED)


@pytest.mark.short(4)
@pytest.mark.parametrize("rounds", range(0, 90, 15))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_counts_are_exact_when_the_task_is_rescaled(
    tmp_path: Any, before: int, after: int, rounds: int
) -> None:
    made = bench(tmp_path, MINUTES, before)
    for _ in range(rounds):
        made.round()
    made.rewire(count=after)
    for _ in range(rounds // 3):
        made.round()
    made.rewire(count=before)
    made.settle()
    assert made.completed
    assert by_extent(made) == WANTED


def test_a_stage_that_spark_could_not_run_is_run_again_while_its_server_is_replaced(
    tmp_path: Any,
) -> None:
    made = bench(tmp_path, GLOBAL, 1)
    full = UserFunctionError("java.io.IOException: No space left on device")
    failures: list[Exception] = [Unavailable("no server answers")] * 3
    failures += [Blocked("full"), full] * 4

    def runner(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        run_plan(*arguments)

    made.stage_runner = runner
    for _ in range(11):
        made.settle()
        assert not made.completed
        assert made.exceptions == []
        made.clock.advance(15.0)
    made.settle()
    assert made.completed
    assert Counter({each["word"]: each["count"] for each in made.written("write")}) == EXPECTED


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (Unavailable("no JVM"), "window words of task count, by Spark: no JVM"),
        (UserFunctionError("long overflow"), "window words of task count, by Spark: long overflow"),
    ],
)
def test_a_stage_that_keeps_failing_kills_the_job(
    tmp_path: Any, error: Exception, reported: str
) -> None:
    made = bench(tmp_path, GLOBAL, 1)

    def runner(*arguments: Any) -> None:
        raise error

    made.stage_runner = runner
    for _ in range(TaskSettings().seal_attempts_max):
        assert made.exceptions == []
        made.settle()
        made.clock.advance(AWAY_S)
    assert reported in made.exceptions[0]["detail"]
    assert made.proposals("kill-job")


@pytest.mark.short(2)
@pytest.mark.parametrize("rounds", [30, 90])
@pytest.mark.parametrize("job", [MINUTES, SESSIONS], ids=["fixed", "session"])
def test_files_in_an_object_store_are_counted_and_removed_as_those_in_a_folder(
    fake_store: ObjectStore, job: Any, rounds: int
) -> None:
    job = {**job, "triggers": [{**job["triggers"][0], "postEvictor": ["all"]}]}
    made, folders = bench(f"{fake_store.url}/state", job, 2, page=2), set[str]()

    def runner(request: StageRequest, *others: Any) -> None:
        assert request.objects is not None
        folders.add(request.objects.url.rpartition("/")[0])
        run_plan(request, *others)

    made.stage_runner = runner
    for _ in range(rounds):
        made.round()
    made.crash(made.task("count", 1))
    made.settle()
    assert made.completed
    if job["windows"] == MINUTES["windows"]:
        assert by_extent(made) == WANTED
    else:
        assert set(by_extent(made)) == set(IN_SESSIONS)
    assert folders == {f"{fake_store.url}/state/job-1/windows.spark/count"}
    open_store(f"{fake_store.url}/state").remove_tree("job-1")
    assert fake_store.keys("state/") == []


def test_a_store_that_refuses_kills_the_job_with_task_and_key(fake_store: ObjectStore) -> None:
    made = bench("s3://no-such-bucket/state", GLOBAL, 1)
    made.settle()
    detail = made.exceptions[0]["detail"]
    assert (
        "state of count: state cannot be kept in s3://no-such-bucket/state/job-1/windows.spark/count/p-"
        in detail
    )
    assert "there is no such bucket" in detail


def test_the_files_of_windows_by_spark_go_with_their_job(tmp_path: Any) -> None:
    made = bench(tmp_path, GLOBAL, 1)
    made.settle()
    left = tmp_path / "job-1" / "windows.spark" / "count" / "r-dead" / "_temporary"
    left.mkdir(parents=True)
    (tmp_path / "job-2" / "windows.spark").mkdir(parents=True)
    open_store(str(tmp_path)).remove_tree("job-1")
    assert not (tmp_path / "job-1" / "windows.spark").exists()
    assert (tmp_path / "job-2" / "windows.spark").exists()
