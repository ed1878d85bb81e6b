"""Spark stages in the middle of a whole job on Spark, without a JVM: stages are functions of pandas
here (`support.spark.query`); what goes to them and comes from them is as on Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.servers.object_stores import ObjectStore
from tests.support.spark.query import Frames, publish_all, request_of, run_query

from onyx.ids import GroupId
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.driver.driver import Leftovers
from onyx.spark.driver.request import QueryReply, TaskCounts
from onyx.storage.opening import location_of

Segments = list[dict[str, Any]]
MODULE = """
calls = []

def same(frame):
    return frame

def doubled(frame):
    return frame.assign(n=frame.n * 2)

def joined(read, count_up, least):
    return read[read.n >= least].merge(count_up, on="k")

def none_left(frame):
    return frame[frame.n < 0]

def fails(frame):
    calls.append(len(frame))
    raise ZeroDivisionError("by zero")

def fails_once(frame):
    calls.append(len(frame))
    if len(calls) == 1:
        raise OSError("away")
    return frame

def counted(event, window, trigger, state_event, state):
    return {"k": state_event["group_key"], "many": state}
"""
NUMBERS = [{"n": n, "k": n % 3} for n in range(30)]
JOIN = """
  guarantee: exactly-once
  workflow: [[read, stage], [read, count-up], [count-up, stage], [stage, write], [stage, small]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: NUMBERS, partitions: 2}}
    - {name: count-up, type: reduce, groupByKey: k, fluxPolicy: continue}
    - {name: stage, type: function, sparkStage: "small_stages:joined",
       options: {path: bundles, stageParams: {least: 10}}}
    - {name: write, type: output, plugin: files, options: {path: write}}
    - {name: small, type: output, plugin: files, options: {path: small}}
  windows: [{id: counts, task: count-up, type: global, aggregation: count}]
  triggers: [{windowId: counts, type: watermark, refinement: accumulating,
              emit: "small_stages:counted"}]
  flowConditions:
    - {from: stage, to: [small], predicate: ["<", n, 20]}
    - {from: stage, to: [write], predicate: [">=", n, 20]}
"""
CHAIN = """
  guarantee: exactly-once
  workflow: [[read, stage], [stage, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: NUMBERS, partitions: 2}}
    - {name: stage, type: function, sparkStage: "small_stages:FUNCTION", options: {path: bundles}}
    - {name: write, type: output, plugin: files, options: {path: write}}
"""
FOLD = """
  guarantee: exactly-once
  workflow: [[read, stage], [read, count-up], [stage, count-up], [count-up, write]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: NUMBERS, partitions: 2},
       watermarkKey: n}
    - {name: stage, type: function, sparkStage: "small_stages:same", options: {path: bundles}}
    - {name: count-up, type: reduce, groupByKey: k, fluxPolicy: continue}
    - {name: write, type: output, plugin: files, options: {path: write}}
  windows: [{id: counts, task: count-up, type: global, aggregation: count}]
  triggers: [{windowId: counts, type: watermark, refinement: accumulating,
              emit: "small_stages:counted"}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import sys

    (tmp_path / "small_stages.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("onyx.spark_query.middle.stages.PAUSE_S", 0.0)
    yield tmp_path
    sys.modules.pop("small_stages", None)


def job(spec: str, segments: Segments = NUMBERS) -> Job:
    head = "apiVersion: onyx.dev/v1beta1\nkind: OnyxJob\nmetadata: {name: numbers}\nspec:"
    return parse_manifest((head + spec.replace("NUMBERS", json.dumps(segments))).encode())


def run(made: Job, folder: Path, spark: Frames | None = None) -> QueryReply:
    request = request_of(made, folder, ("small_stages",))
    reply = run_query(request, spark)
    if reply.failure is None:
        publish_all(request, reply)
    return reply


def lines(folder: Path) -> Segments:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def in_order(segments: Segments) -> Segments:
    return sorted(segments, key=lambda each: json.dumps(each, sort_keys=True))


@pytest.mark.parametrize("repeats", [0, 1])
def test_what_a_stage_makes_of_two_tasks_goes_on_once_however_often_spark_runs_a_task(
    repeats: int, folder: Path
) -> None:
    reply = run(job(JOIN), folder, Frames(repeats=repeats))
    assert reply.failure is None, reply.failure
    assert in_order(lines(folder / "small")) == in_order(
        [{"n": n, "k": n % 3, "many": 10} for n in range(10, 20)]
    )
    assert in_order(lines(folder / "write")) == in_order(
        [{"n": n, "k": n % 3, "many": 10} for n in range(20, 30)]
    )
    assert reply.tasks["stage"] == TaskCounts(read=33, written=20)


def test_a_window_gets_the_rows_of_a_stage_and_those_beside_it(folder: Path) -> None:
    reply = run(job(FOLD), folder)
    assert reply.failure is None, reply.failure
    assert in_order(lines(folder / "write")) == [{"k": k, "many": 20} for k in range(3)]


def test_stages_follow_each_other(folder: Path) -> None:
    spec = CHAIN.replace("FUNCTION", "doubled").replace(
        "[[read, stage], [stage, write]]", "[[read, stage], [stage, again], [again, write]]"
    )
    spec += '    - {name: again, type: function, sparkStage: "small_stages:doubled",\n'
    spec += "       options: {path: bundles}}\n"
    reply = run(job(spec), folder)
    assert reply.failure is None, reply.failure
    assert sorted(each["n"] for each in lines(folder / "write")) == [*range(0, 120, 4)]


def test_a_stage_without_a_segment_is_not_run(folder: Path) -> None:
    reply = run(job(CHAIN.replace("FUNCTION", "fails"), []), folder)
    assert reply.failure is None, reply.failure
    assert lines(folder / "write") == []


def test_a_stage_may_make_nothing(folder: Path) -> None:
    reply = run(job(CHAIN.replace("FUNCTION", "none_left")), folder)
    assert reply.failure is None, reply.failure
    assert reply.tasks["stage"] == TaskCounts(read=30, written=0)


def test_a_stage_that_fails_is_run_again(folder: Path) -> None:
    reply = run(job(CHAIN.replace("FUNCTION", "fails_once")), folder)
    assert reply.failure is None, reply.failure
    assert len(lines(folder / "write")) == 30


def test_a_stage_that_fails_three_times_fails_the_job_and_names_its_task(folder: Path) -> None:
    reply = run(job(CHAIN.replace("FUNCTION", "fails")), folder)
    assert reply.failure is not None
    assert (reply.failure.task, reply.failure.by_user) == ("stage", True)
    assert "small_stages:fails failed 3 times, last with: ZeroDivisionError: by zero" in (
        reply.failure.message
    )
    import small_stages  # type: ignore[import-not-found]

    assert small_stages.calls == [30, 30, 30]


def test_a_frame_without_a_segment_needs_a_schema(folder: Path) -> None:
    made = job(JOIN.replace("[read, count-up], ", "[other, count-up], ").replace(
        "  windows:", "    - {name: other, type: input, plugin: sequence, options: {segments: []}}"
        "\n  windows:"))  # fmt: skip
    reply = run(made, folder)
    assert reply.failure is not None
    assert reply.failure.task == "stage"
    assert "no segment of task count-up" in reply.failure.message
    assert "schemas: {count-up: ...}" in reply.failure.message


def test_a_stage_that_cannot_be_called_is_refused_before_anything_is_read(folder: Path) -> None:
    made = job(JOIN.replace("least: 10", "most: 10"))
    lost = [
        replace(each, fn="nowhere:f") if each.name == "count-up" else each for each in made.catalog
    ]
    reply = run(replace(made, catalog=tuple(lost)), folder)
    assert reply.failure is not None
    assert "cannot be called with count_up, read, most" in reply.failure.message
    assert reply.failure.by_user


FRAMES = """
  workflow: [[read, numbers], [read, keys]]
  catalog:
    - {name: read, type: input, plugin: sequence, options: {segments: NUMBERS}}
    - {name: numbers, type: output, plugin: spark,
       options: {path: out, frame: read, stage: "small_stages:joined", stageParams: {least: 10}}}
    - {name: keys, type: output, plugin: spark, options: {path: out, frame: count_up}}
"""


def test_outputs_of_a_job_on_spark_are_frames_of_one_stage(folder: Path) -> None:
    reply = run_query(request_of(job(FRAMES), folder, ("small_stages",)))
    assert reply.failure is None, reply.failure
    assert {task: len(each.tokens) for task, each in reply.outputs.items()} == {
        "numbers": 1,
        "keys": 1,
    }


segments = st.lists(
    st.fixed_dictionaries({"n": st.integers(-9, 9), "k": st.integers(0, 4)}), min_size=1, max_size=9
)


@given(given_ones=segments, buckets=st.integers(1, 5), repeats=st.integers(0, 1))
@settings(max_examples=examples(15), deadline=None)
def test_a_stage_that_changes_nothing_changes_nothing(
    given_ones: Segments, buckets: int, repeats: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("same")
    (folder / "small_stages.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        made = job(CHAIN.replace("FUNCTION", "same"), given_ones)
        reply = run(made, folder, Frames(buckets, repeats=repeats))
    assert reply.failure is None, reply.failure
    found = Counter((each["n"], each["k"]) for each in lines(folder / "write"))
    assert found == Counter((each["n"], each["k"]) for each in given_ones)


def test_files_of_the_dead_and_of_runs_that_are_over_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "job.stage"
    for name in ("mine/one", "mine/two", "dead/one", "alive/one"):
        (folder / name / "parts").mkdir(parents=True)
    left = Leftovers(
        [location_of(str(tmp_path)) / "job.stage", location_of(str(tmp_path / "nowhere"))],
        GroupId("mine"),
    )
    left.fence([GroupId("mine"), GroupId("alive")])
    left.sweep("one")
    assert sorted(str(each.relative_to(folder)) for each in folder.glob("*/*")) == [
        "alive/one",
        "mine/two",
    ]
    left.sweep("two")
    left.fence([])
    assert not folder.exists()


@pytest.mark.parametrize("repeats", [0, 1])
def test_what_comes_to_a_stage_and_what_it_makes_may_be_in_an_object_store(
    repeats: int, folder: Path, fake_store: ObjectStore
) -> None:
    made = job(JOIN.replace("path: bundles", f"path: '{fake_store.url}/bundles'"))
    reply = run(made, folder, Frames(repeats=repeats))
    assert reply.failure is None, reply.failure
    assert sorted(each["n"] for each in lines(folder / "small")) == list(range(10, 20))
    assert in_order(lines(folder / "write")) == in_order(
        [{"n": n, "k": n % 3, "many": 10} for n in range(20, 30)]
    )
    assert not (folder / "bundles").exists()
    (own,) = {key.rpartition("/group-1/")[0] for key in fake_store.keys("bundles/")}
    left = Leftovers([location_of(f"s3://{fake_store.name}/{own}")], GroupId("group-1"))
    left.fence([GroupId("group-1")])
    attempts = {
        key.removeprefix(f"{own}/group-1/").partition("/")[0] for key in fake_store.keys(own)
    }
    assert len(attempts) == 1
    left.sweep(*attempts)
    assert fake_store.keys("bundles/") == []


def test_what_dead_workers_have_left_in_an_object_store_is_removed(
    fake_store: ObjectStore,
) -> None:
    for name in ("mine/one", "dead/one", "alive/one"):
        fake_store.put(f"job.stage/{name}/parts/a", "")
    left = Leftovers([location_of(f"{fake_store.url}/job.stage")], GroupId("mine"))
    left.fence([GroupId("mine"), GroupId("alive")])
    assert fake_store.keys() == ["job.stage/alive/one/parts/a", "job.stage/mine/one/parts/a"]


def test_a_store_that_refuses_fails_the_query_with_task_and_key(
    folder: Path, fake_store: ObjectStore
) -> None:
    reply = run(job(JOIN.replace("path: bundles", "path: 's3://no-such-bucket/b'")), folder)
    assert reply.failure is not None
    assert "task 'stage'" in reply.failure.message
    assert "s3://no-such-bucket/b/" in reply.failure.message
    assert "there is no such bucket" in reply.failure.message


def test_a_segment_that_a_stage_cannot_have_is_a_dead_letter(folder: Path) -> None:
    spec = CHAIN.replace("FUNCTION", "same").replace(
        "{path: bundles}", "{path: bundles}, deadLetter: bad"
    )
    spec += "    - {name: bad, type: output, plugin: files, options: {path: bad}}\n"
    mixed: Segments = [*NUMBERS, {"n": "three", "k": 0}, {"n": None, "k": 1}]
    reply = run(job(spec, mixed), folder)
    assert reply.failure is None, reply.failure
    (letter,) = lines(folder / "bad")
    assert letter["segment"] == {"n": "three", "k": 0}
    assert "key 'n'" in letter["error"]["message"]
    assert len(lines(folder / "write")) == 31
    assert reply.tasks["stage"].read == 32


@pytest.mark.parametrize("repeats", [0, 1])
def test_tasks_of_spark_that_see_other_segments_first_agree(folder: Path, repeats: int) -> None:
    spec = CHAIN.replace("FUNCTION", "same").replace(
        "{path: bundles}", "{path: bundles}, deadLetter: bad"
    )
    spec += "    - {name: bad, type: output, plugin: files, options: {path: bad}}\n"
    mixed: Segments = [{"n": n if n % 2 else str(n), "k": n} for n in range(12)]
    reply = run(job(spec, mixed), folder, Frames(4, repeats=repeats))
    assert reply.failure is None, reply.failure
    taken, left = lines(folder / "write"), lines(folder / "bad")
    assert len(taken) == len(left) == 6
    assert len({type(each["n"]) for each in taken}) == 1
