"""Stages in a line of a test, and the plans and tasks of a job on Spark: one session for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.session import local_spark

from onyx.errors import FailsAgain, UserError
from onyx.model.kinds import Native
from onyx.model.parsing.job import parse_manifest
from onyx.spark.explain import explained
from onyx.spark.session.progress import progress_of
from onyx.spark.windows.aggregate import aggregate
from onyx.spark.windows.plan import INT, KEY_INT, Piece, Plan, SessionRule
from onyx.spark_query.explain import explained_query
from onyx.testing import run_stage

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


def late(flights: Any, least: int) -> Any:
    return flights.where(flights.delay >= least).orderBy("carrier")


def joined(read: Any, names: Any) -> Any:
    return read.join(names, "carrier").groupBy("name").count()


FLIGHTS = [{"carrier": "AA", "delay": 20.0}, {"carrier": "UA", "delay": None}]
NAMES = [{"carrier": "AA", "name": "American"}]


def test_a_stage_is_called_with_segments_and_gives_segments(session: Any) -> None:
    assert run_stage(late, FLIGHTS, session=session, least=15) == [FLIGHTS[0]]
    found = run_stage(joined, session=session, read=FLIGHTS, names=NAMES)
    assert found == [{"name": "American", "count": 1}]


def test_segments_keep_their_types_in_a_test_too(session: Any) -> None:
    rows = [{"wait": timedelta(seconds=1), "id": 2**64 - 1, "tags": [], "at": None}]
    assert run_stage(lambda frame: frame, rows, session=session) == rows


def test_a_frame_without_segments_has_a_schema(session: Any) -> None:
    schemas = {"names": "carrier STRING, name STRING"}
    assert run_stage(joined, session=session, read=FLIGHTS, names=[], schemas=schemas) == []


def test_what_a_stage_raises_and_what_it_cannot_have_is_said(session: Any) -> None:
    with pytest.raises(FailsAgain, match="no_such"):
        run_stage(lambda frame: frame.select("no_such"), FLIGHTS, session=session)
    with pytest.raises(UserError, match="segment 1: key 'n'"):
        run_stage(lambda frame: frame, [{"n": 1}, {"n": "x"}], session=session)


SPEC: dict[str, Any] = {
    "guarantee": "exactly-once",
    "workflow": [["read", "fold"], ["fold", "stage"], ["read", "stage"], ["stage", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "files", "options": {"path": "in"},
         "watermarkKey": "at"},
        {"name": "fold", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
        {"name": "stage", "type": "function", "sparkStage": "m:joined",
         "options": {"path": "p", "schemas": {"read": "carrier STRING",
                                              "fold": "carrier STRING, name STRING"}}},
        {"name": "write", "type": "output", "plugin": "spark",
         "options": {"path": "q", "stage": "m:late", "stageParams": {"least": 1}}},
    ],
    "windows": [{"id": "w", "task": "fold", "type": "session", "windowKey": "at",
                 "timeoutGap": [1, "minute"], "aggregation": ["sum", "n"], "engine": "spark"}],
    "triggers": [{"windowId": "w", "type": "watermark", "postEvictor": ["all"], "emit": "m:row"}],
}  # fmt: skip


def test_the_physical_plans_of_stages_and_windows_are_shown(session: Any, tmp_path: Path) -> None:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    job = parse_manifest(json.dumps({**head, "spec": SPEC}).encode())
    named = {"m:joined": lambda fold, read: joined(read, fold), "m:late": late}
    middle, end, window = explained(job, named.__getitem__, session, tmp_path)
    assert middle.startswith("stage m:joined of task stage\n== Physical Plan ==")
    assert "Join" in middle
    assert "Exchange" in middle
    assert end == (
        "stage m:late of task write\n  not known before there are segments: give a schema of what "
        "comes to it"
    )
    assert window.startswith("window w of task fold\n== Physical Plan ==")
    assert "Window" in window


def test_a_window_of_one_extent_is_grouped_by_its_key_alone(session: Any, tmp_path: Path) -> None:
    """[a second key costs a fifth of the aggregation]"""
    window = {**SPEC["windows"][0], "type": "global"}
    spec = {**SPEC, "windows": [{key: window[key] for key in window if key in ONE_EXTENT}]}
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "j"}}
    job = parse_manifest(json.dumps({**head, "spec": spec}).encode())
    named = {"m:joined": lambda fold, read: joined(read, fold), "m:late": late}
    *_, plan = explained(job, named.__getitem__, session, tmp_path)
    assert "Keys [1]: [key_text" in plan


ONE_EXTENT = {"id", "task", "type", "aggregation", "engine"}


WHOLE = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: whole}
spec:
  engine: spark
  guarantee: exactly-once
  workflow: [[read, fold], [fold, write], [read, stage], [stage, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: in}}
    - {name: fold, type: reduce, groupByKey: key, fluxPolicy: continue}
    - {name: stage, type: function, sparkStage: "m:late",
       options: {path: p, stageParams: {least: 1}}}
    - {name: write, type: output, plugin: files, options: {path: out}}
  windows: [{id: w, task: fold, type: global, aggregation: count}]
  triggers: [{windowId: w, type: segment, threshold: [9, elements],
              refinement: accumulating, emit: "m:row"}]
"""


def test_the_physical_plan_of_a_whole_job_is_shown(session: Any, tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "5"}
    before, behind = explained_query(parse_manifest(WHOLE.encode()), session, conf, tmp_path)
    assert before.startswith("job whole: fragment 0, a MapInArrow each\n== Physical Plan ==")
    assert "Range" in before
    assert "fragment_0(" in before
    assert "fragment_1(" in behind
    assert behind.startswith("job whole: fragment 1, a MapInArrow each")
    assert "Exchange" in behind
    assert "Scan parquet" in behind


def test_few_rows_are_few_tasks_where_spark_has_200_partitions(
    session: Any, tmp_path: Path
) -> None:
    """As on a cluster and on a Connect server, of which Onyx sets no shuffle partitions: adaptive
    execution joins those that are small."""
    own = session.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "200")
    numbers = list(range(2_000))
    table = pa.table(
        {
            "shard": pa.array([each % 128 for each in numbers], pa.int16()),
            "extent": pa.array([each // 500 for each in numbers]),
            "coordinate": pa.array(numbers),
            "key_int": pa.array([each % 50 for each in numbers]),
            "int": pa.array(numbers),
        }
    )
    path = str(tmp_path / "p.parquet")
    pq.write_table(table, path)
    plans = [
        Plan("sum", Native(merges="sum"), (KEY_INT, INT), (Piece((path,)),), sessions=sessions)
        for sessions in (None, SessionRule(5))
    ]
    frames = [aggregate(own, **plan.params()) for plan in plans]
    frames.append(own.read.parquet(path).groupBy("key_int").count())
    for number, frame in enumerate(frames):
        own.sparkContext.setJobGroup(f"few-{number}", "few rows")
        frame.write.parquet(str(tmp_path / f"out-{number}"))
        done = progress_of(own.sparkContext, f"few-{number}")
        assert done is not None
        assert 1 < done.tasks <= 4
