"""The driver of a job that Spark runs: what it starts, commits, publishes and logs, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.support.jobs.bench import GROUP, Bench, ScriptedQuery

from onyx.base.path_names import staged_name
from onyx.client.reports import outcomes
from onyx.errors import Blocked, SettingsError, Unavailable
from onyx.ids import GroupId
from onyx.log import documents
from onyx.plugins.attempts import AWAY_S, BLOCKED_RETRY_S
from onyx.plugins.protocol import SealProgress
from onyx.program.phases import Phase
from onyx.spark.driver.driver import Counts
from onyx.spark.driver.outputs import SpoolWriter
from onyx.spark.driver.request import (
    OutputResult,
    Position,
    QueryBatch,
    QueryFailure,
    QueryProgress,
    QueryReply,
    TaskCounts,
)
from onyx.storage.staging.interface import STAGING
from onyx.task.driver.driver_task import QUERY_RETRY_S, DriverTask
from onyx.task.table import TABLES, StepOutcome, TaskKind
from onyx.telemetry.catalog import RETRIES, Metric

OTHER = GroupId("group-2")
ATTEMPTS = 3
"""`seal_attempts_max` by default."""


def a_spec(folder: Path) -> dict[str, Any]:
    """People who are greeted, on Spark, into files."""
    return {
        "engine": "spark",
        "workflow": [["people", "greet"], ["greet", "out"]],
        "catalog": [
            {"name": "people", "type": "input", "plugin": "files", "options": {"path": "in.jsonl"}},
            {"name": "greet", "type": "function", "fn": "m:greet"},
            {
                "name": "out",
                "type": "output",
                "plugin": "files",
                "options": {"path": str(folder / "out"), "format": "jsonl"},
            },
        ],
    }


def a_job(folder: Path, after: Bench | None = None, **spec: Any) -> Bench:
    return Bench(a_spec(folder) | spec)


def driver(bench: Bench) -> DriverTask:
    found = bench.task("spark")
    assert isinstance(found, DriverTask)
    return found


def staged(folder: Path, bench: Bench, names: Sequence[str], group: str = GROUP) -> QueryReply:
    """What a query says that has staged these parts, and the parts."""
    writer = f"{group}.a1"
    place = folder / "out" / STAGING / f"{bench.id}.out" / writer
    place.mkdir(parents=True)
    for name in names:
        (place / staged_name(name)).write_text(f'{{"part":"{name}"}}\n')
    tokens = tuple({"writer": writer, "name": name} for name in names)
    counts = {"people": TaskCounts(0, 3), "greet": TaskCounts(3, 3), "out": TaskCounts(3, 0)}
    return QueryReply(outputs={"out": OutputResult(tokens)}, tasks=counts)


def published(folder: Path) -> list[str]:
    found = (folder / "out").glob("part-*")
    return sorted(path.name for path in found)


def begun(bench: Bench) -> ScriptedQuery:
    bench.settle()
    return bench.queries[-1]


def test_the_driver_goes_through_its_rows_in_order(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    begun(bench).answer = staged(tmp_path, bench, ["part-0.jsonl"])
    bench.settle()
    rows = [row.phase for row in TABLES[TaskKind.DRIVER]]
    assert [*bench.trace["spark"], driver(bench).phase] == rows
    assert [command.NAME for command in bench.proposed] == [
        "register-partitions",
        "signal-ready",
        "exhaust-input",
        "seal-output",
    ]
    assert bench.completed
    assert published(tmp_path) == ["part-0.jsonl"]


def test_what_did_not_go_on_is_what_was_committed_however_often_the_query_ran(
    tmp_path: Path,
) -> None:
    bench = a_job(tmp_path)
    reply = staged(tmp_path, bench, ["part-0.jsonl"])
    failed = TaskCounts(3, 2, failed=1, first_failed="ValueError: no", without_row=3)
    begun(bench).answer = msgspec.structs.replace(reply, tasks={**reply.tasks, "greet": failed})
    assert outcomes(bench.log, bench.replica(), bench.job, bench.id) == ()

    bench.settle()

    assert outcomes(bench.log, bench.replica(), bench.job, bench.id) == (
        "1 of 3 segments of greet went to dead letters; first error: ValueError: no",
        "3 of 3 segments of greet found no row",
    )


@pytest.mark.parametrize(
    ("published", "again"), [({"people": 0}, 3), ({"people": 2}, 1), ({"people": 3}, 0)]
)
def test_what_a_query_reads_that_is_run_again_counts_as_read_again(
    published: dict[str, int], again: int
) -> None:
    added: list[tuple[Metric, float]] = []
    metrics = SimpleNamespace(
        batch=lambda *_: None, add=lambda metric, amount: added.append((metric, amount))
    )
    counts = Counts(["people"], cast(Any, lambda task: metrics))
    counts.begin({})
    counts.report({"people": TaskCounts(3, 3)})

    counts.begin(published)

    assert [amount for metric, amount in added if metric is RETRIES] == [again] * (again > 0)


def test_the_query_is_asked_for_the_job_as_its_manifest_says(tmp_path: Path) -> None:
    spark = {"master": "local[2]", "sparkConf": {"spark.sql.shuffle.partitions": "3"}}
    request = begun(a_job(tmp_path, spark=spark)).request
    assert (request.master, request.spark_conf) == (spark["master"], spark["sparkConf"])
    assert request.incarnation == GROUP
    assert request.manifest["spec"]["engine"] == "spark"
    assert [entry["name"] for entry in request.manifest["spec"]["catalog"]] == [
        "people",
        "greet",
        "out",
    ]


def test_nothing_is_visible_while_the_query_runs(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    staged(tmp_path, bench, ["part-0.jsonl"])
    query.progress = QueryProgress("running", {"people": TaskCounts(0, 3)})
    bench.settle()
    assert driver(bench).phase is Phase.RUN_QUERY
    assert published(tmp_path) == []
    assert not bench.proposals("exhaust-input")


def test_how_far_spark_is_shows_and_is_no_advance(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    query.progress = QueryProgress("running", spark=SealProgress(tasks=8, tasks_done=2))
    bench.settle()
    found = driver(bench).runtime.driver
    assert found.where == "running: 25 % of its 8 Spark tasks are done"
    query.progress = QueryProgress("running", spark=SealProgress(tasks=8, tasks_done=4))
    assert not found.advanced()
    assert found.where == "running: 50 % of its 8 Spark tasks are done"
    query.progress = QueryProgress("running", {"people": TaskCounts(0, 3)})
    assert found.advanced()


def test_a_worker_that_may_be_dead_publishes_nothing_until_it_may_again(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    begun(bench).answer = staged(tmp_path, bench, ["part-0.jsonl"])
    bench.allowed = False
    bench.settle()
    assert published(tmp_path) == []
    bench.allowed = True
    bench.settle()
    assert published(tmp_path) == ["part-0.jsonl"]


@pytest.mark.parametrize("moved", [0, 1, 2], ids=["none", "some", "all"])
def test_who_takes_over_after_the_commit_publishes_the_rest_and_runs_no_query(
    tmp_path: Path, moved: int
) -> None:
    names = ["part-0.jsonl", "part-1.jsonl"]
    bench = a_job(tmp_path)
    begun(bench).answer = staged(tmp_path, bench, names)
    bench.settle()
    place = tmp_path / "out" / STAGING / f"{bench.id}.out" / f"{GROUP}.a1"
    for name in names[moved:]:  # as if the worker had died before it published these
        (tmp_path / "out" / name).rename(place / staged_name(name))
    bench.crash(driver(bench))
    bench.replace_groups(OTHER)
    bench.settle()
    assert published(tmp_path) == names
    assert len(bench.queries) == 1


def test_who_takes_over_before_the_commit_runs_the_query_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onyx.jobs")
    bench = a_job(tmp_path)
    bench.settle()
    staged(tmp_path, bench, ["part-0.jsonl"], group="group-of-the-dead")
    bench.crash(driver(bench))
    query = begun(bench)
    assert len(bench.queries) == 2
    assert not (tmp_path / "out" / STAGING / f"{bench.id}.out" / "group-of-the-dead.a1").exists()
    query.answer = staged(tmp_path, bench, ["part-1.jsonl"])
    bench.settle()
    assert published(tmp_path) == ["part-1.jsonl"]
    said = "task spark drives the query of the job: nothing is committed"
    assert caplog.messages == [said, said]


def test_of_two_workers_with_a_result_the_first_one_to_commit_wins(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    first = staged(tmp_path, bench, ["part-first.jsonl"], group="group-2")
    digest = bench.log.put_chunk(b"""{"attempt":"a1","outputs":{"out":{"tokens":
        [{"writer":"group-2.a1","name":"part-first.jsonl"}],"spools":[]}},"tasks":{}}""")
    assert first.outputs
    bench.log.put_document(documents.committed_query(bench.id), digest.encode(), None)
    query.answer = staged(tmp_path, bench, ["part-second.jsonl"])
    bench.settle()
    assert published(tmp_path) == ["part-first.jsonl"]
    assert bench.completed


def test_a_new_allocation_version_leaves_the_query_alone(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    bench.rewire()
    bench.settle()
    assert bench.queries == [query]
    assert not query.ended
    query.answer = staged(tmp_path, bench, ["part-0.jsonl"])
    bench.settle()
    assert bench.completed


@pytest.mark.parametrize("reason", ["job-killed", "job-suspended", "peer-reallocated"])
def test_a_driver_that_stops_ends_its_query(tmp_path: Path, reason: str) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    assert bench.stop(driver(bench), reason) is StepOutcome.DONE
    assert query.ended


def test_a_job_that_drains_ends_its_query_and_completes_without_a_result(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    bench.drain()
    bench.settle()
    assert query.ended
    assert bench.completed
    assert published(tmp_path) == []


FAILED = QueryFailure("m:greet raised KeyError: 'name'", by_user=True, task="greet")


@pytest.mark.parametrize(
    ("report", "task"),
    [(None, "spark"), ({"task": "greet", "detail": "m:greet raised"}, "greet")],
    ids=["without a report", "with one"],
)
def test_a_job_that_cannot_succeed_is_killed_at_once_with_the_report_of_its_task(
    tmp_path: Path, report: dict[str, Any] | None, task: str
) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    query.answer = QueryReply(QueryFailure(FAILED.message, True, "greet", report))
    bench.settle()
    assert query.ended
    assert [command.NAME for command in bench.proposed][-1] == "kill-job"
    (stored,) = bench.exceptions
    assert (stored["task"], stored["job"]) == (task, bench.id)
    assert "m:greet raised" in stored["detail"]


def test_a_worker_that_can_run_no_spark_says_so_at_once(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    begun(bench).answer = SettingsError("no Java that Spark can use: install one")
    bench.settle()
    (stored,) = bench.exceptions
    assert "no Java that Spark can use" in stored["detail"]


def test_a_query_that_spark_could_not_run_is_run_again_so_often(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    for attempt in range(ATTEMPTS):
        bench.settle()
        assert len(bench.queries) == attempt + 1
        bench.queries[-1].answer = Unavailable("the process died")
        bench.step(driver(bench))
        bench.clock.advance(AWAY_S)
    (stored,) = bench.exceptions
    assert f"failed {ATTEMPTS} times, last with: the process died" in stored["detail"]
    assert all(query.ended for query in bench.queries)
    attempts = {query.request.attempt for query in bench.queries}
    assert len(attempts) == ATTEMPTS


def test_what_a_query_failed_with_is_said_until_a_later_one_advances(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    begun(bench).answer = QueryReply(QueryFailure("no server answers", by_user=False))
    bench.settle()
    batches = driver(bench).status.batches
    bench.clock.advance(AWAY_S)
    query = begun(bench)
    for phase in ("starting", "running"):
        query.progress = QueryProgress(phase)
        bench.settle()
        assert driver(bench).status.obstacle == "the query on Spark failed with: no server answers"
        assert driver(bench).status.batches == batches, "this is no progress of the job"
    query.progress = QueryProgress("running", {"greet": TaskCounts(1, 1)})
    bench.settle()
    assert driver(bench).status.obstacle == ""
    assert driver(bench).status.batches > batches


def test_what_nobody_can_blame_is_tried_as_often_and_not_waited_for(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    for _ in range(ATTEMPTS):
        query = begun(bench)
        query.answer = QueryReply(QueryFailure("a bug in Spark", by_user=False, away=False))
        bench.step(driver(bench))
        bench.clock.advance(QUERY_RETRY_S)
        bench.settle()
    (stored,) = bench.exceptions
    assert f"failed {ATTEMPTS} times, last with: a bug in Spark" in stored["detail"]


def test_a_query_that_has_no_room_begins_again_as_often_as_it_takes(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    for attempt in range(ATTEMPTS + 1):
        bench.settle()
        assert len(bench.queries) == attempt + 1
        bench.queries[-1].answer = Blocked("No space left on device")
        bench.step(driver(bench))
        assert driver(bench).status.obstacle == "No space left on device"
        bench.clock.advance(BLOCKED_RETRY_S)
    assert bench.exceptions == []
    begun(bench).answer = staged(tmp_path, bench, ["part-0.jsonl"])
    bench.settle()
    assert bench.completed


def test_an_output_that_cannot_be_reached_is_waited_for(tmp_path: Path) -> None:
    bench = a_job(tmp_path)
    query = begun(bench)
    query.answer = staged(tmp_path, bench, ["part-0.jsonl"])
    (tmp_path / "out").rename(tmp_path / "away")
    bench.settle()
    assert driver(bench).phase is Phase.PUBLISH
    assert "is gone" in driver(bench).status.obstacle
    (tmp_path / "away").rename(tmp_path / "out")
    bench.clock.advance(10.0)
    bench.settle()
    assert published(tmp_path) == ["part-0.jsonl"]
    assert bench.completed


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_seal_that_fails_is_tried_as_often_as_on_peers(tmp_path: Path, failures: int) -> None:
    people, greet, _ = a_spec(tmp_path)["catalog"]
    out = {"name": "out", "type": "output", "plugin": "blackhole"}
    spec = a_spec(tmp_path) | {"catalog": [people, greet, out]}
    bench = Bench(spec, seal_failures=failures)
    begun(bench).answer = QueryReply(outputs={"out": OutputResult()})
    for _ in range(ATTEMPTS):
        bench.settle()
        bench.clock.advance(1.0)
    assert bench.completed is (failures < ATTEMPTS)
    sealed = [call for output in bench.outputs["out"] for call in output.calls if call == "seal"]
    assert len(sealed) == min(failures + 1, ATTEMPTS)
    if failures == ATTEMPTS:
        (stored,) = bench.exceptions
        assert (stored["phase"], stored["message"]) == ("publish", "disk full")
        assert "sealing output out failed: OSError: disk full" in stored["detail"]
        assert f"{ATTEMPTS} times" in stored["detail"]


def test_a_stage_of_several_frames_is_prepared_by_the_driver(tmp_path: Path) -> None:
    def late(flights: Any, carriers: Any) -> None: ...

    people, _, _ = a_spec(tmp_path)["catalog"]
    frames = [
        {
            "name": name,
            "type": "output",
            "plugin": "spark",
            "options": {"path": str(tmp_path / "out"), "frame": name, **more},
        }
        for name, more in [("flights", {"stage": "m:late"}), ("carriers", {})]
    ]
    workflow = [["people", "flights"], ["people", "carriers"]]
    spec = a_spec(tmp_path) | {"workflow": workflow, "catalog": [people, *frames]}
    bench = Bench(spec, {"m:late": late})
    begun(bench)
    assert bench.exceptions == []
    assert driver(bench).phase is Phase.RUN_QUERY


ENDLESS = {"name": "people", "type": "input", "plugin": "kafka", "options": {"topic": "t"}}


def an_endless_job(folder: Path) -> Bench:
    _, greet, out = a_spec(folder)["catalog"]
    return Bench(a_spec(folder) | {"catalog": [ENDLESS, greet, out]})


def a_batch(folder: Path, bench: Bench, number: int) -> QueryBatch:
    """A micro-batch that has read three segments, and its part."""
    writer = f"{GROUP}.b{number}"
    place = folder / "out" / STAGING / f"{bench.id}.out" / writer
    place.mkdir(parents=True)
    (place / staged_name(f"part-{number}.jsonl")).write_text("{}\n")
    token = {"writer": writer, "name": f"part-{number}.jsonl"}
    counts = {"people": TaskCounts(3, 3)}
    position = Position("people", "t-0", 3 * number, 3 * number)
    return QueryBatch(number, {"out": OutputResult((token,))}, counts, (position,))


def test_a_micro_batch_is_committed_and_published_before_the_query_goes_on(tmp_path: Path) -> None:
    bench = an_endless_job(tmp_path)
    query = begun(bench)
    for number in (1, 2):
        query.batch = a_batch(tmp_path, bench, number)
        bench.settle()
        assert query.published_batches == list(range(1, number + 1))
        assert len(published(tmp_path)) == number
    assert not bench.completed
    assert bench.queries == [query]
    query.answer = QueryReply(tasks={"people": TaskCounts(6, 6)})
    bench.settle()
    assert bench.completed


def test_what_a_micro_batch_has_spooled_is_removed_once_it_is_committed(tmp_path: Path) -> None:
    _, greet, _ = a_spec(tmp_path)["catalog"]
    shown = {"name": "out", "type": "output", "plugin": "blackhole"}
    bench = Bench(a_spec(tmp_path) | {"catalog": [ENDLESS, greet, shown]})
    query = begun(bench)
    for number in (1, 2):
        writer = SpoolWriter(tmp_path / f"spool-{number}")
        writer.write([{"n": number}])
        writer.close()
        output = OutputResult(spools=(str(writer.path),))
        query.batch = QueryBatch(number, {"out": output}, {}, ())
        bench.settle()
        assert query.published_batches == list(range(1, number + 1))
        assert not writer.path.exists()
    assert bench.written("out") == [{"n": 1}, {"n": 2}]


def test_nothing_of_a_micro_batch_is_visible_of_a_worker_that_may_be_dead(tmp_path: Path) -> None:
    bench = an_endless_job(tmp_path)
    query = begun(bench)
    bench.allowed = False
    query.batch = a_batch(tmp_path, bench, 1)
    bench.settle()
    assert published(tmp_path) == []
    assert query.published_batches == []


def test_who_takes_over_publishes_the_last_micro_batch_and_reads_on_behind_it(
    tmp_path: Path,
) -> None:
    bench = an_endless_job(tmp_path)
    query = begun(bench)
    query.batch = a_batch(tmp_path, bench, 1)
    bench.settle()
    published_part = tmp_path / "out" / "part-1.jsonl"
    place = tmp_path / "out" / STAGING / f"{bench.id}.out" / f"{GROUP}.b1"
    staged_part = place / staged_name("part-1.jsonl")
    staged_part.parent.mkdir(parents=True, exist_ok=True)
    published_part.rename(staged_part)  # as if it had died between commit and publication
    bench.crash(driver(bench))
    after = begun(bench)
    assert after is not query
    assert published(tmp_path) == ["part-1.jsonl"]
    assert (after.request.batches, after.request.positions) == (
        1, (Position("people", "t-0", 3, 3),),
    )  # fmt: skip
    after.batch = a_batch(tmp_path, bench, 2)
    bench.settle()
    assert published(tmp_path) == ["part-1.jsonl", "part-2.jsonl"]
    found = driver(bench).runtime.driver
    assert found.completed == 6


def test_relative_paths_count_from_the_folder_of_the_worker_wherever_spark_runs(
    tmp_path: Path,
) -> None:
    assert Path(begun(a_job(tmp_path)).request.data_dir).is_absolute()


def test_a_query_is_told_whether_it_has_an_end(tmp_path: Path) -> None:
    assert begun(an_endless_job(tmp_path)).request.endless
    assert not begun(a_job(tmp_path)).request.endless


def test_a_query_begins_behind_the_last_micro_batch_after_one_that_spark_failed(
    tmp_path: Path,
) -> None:
    bench = an_endless_job(tmp_path)
    query = begun(bench)
    query.batch = a_batch(tmp_path, bench, 1)
    bench.settle()
    query.answer = QueryReply(QueryFailure("executor lost", by_user=False))
    bench.settle()
    bench.clock.advance(60)
    bench.settle()
    assert [each.request.batches for each in bench.queries] == [0, 1]
