"""Whole jobs of which everything that Spark reads or writes is in a real object store: on peers,
the snapshot of an input, a stage in the middle, a window by Spark beside its state and a stage at
the output, all with one real Spark beside the worker; and on Spark, all that a stage in the middle
gets and makes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import manifest
from tests.support.servers.object_stores import Gateway, ObjectStore

from onyx.settings import Settings, StateSettings
from onyx.spark.target import Target
from onyx.spark.windows.spool import Spool
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
MODULE = "stages_in_objects"
USER_CODE = """
def numbers(spark, many):
    return spark.range(many).selectExpr("id AS n", "id % 3 AS k").repartition(2)

def numbered(n):
    return {"n": n, "k": n % 3}

def doubled(frame):
    return frame.selectExpr("n * 2 AS n", "k")

def row(event, window, trigger, state_event, state):
    return {"k": state_event["group_key"], "total": state}

def sorted_by_key(frame):
    return frame.orderBy("k")
"""
WAIT_S = 300.0


@pytest.fixture
def real_store(s3_gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in s3_gateway.environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(s3_gateway)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{MODULE}.py").write_text(USER_CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return MODULE


def job_on_peers(store: ObjectStore) -> dict[str, Any]:
    return manifest(f"""
        guarantee: exactly-once
        spark: {{master: "local[1]"}}
        workflow: [[read, double], [double, sum], [sum, write]]
        catalog:
          - {{name: read, type: input, plugin: spark, maxPeers: 1,
              options: {{path: "{store.url}/snapshots", frame: "{MODULE}:numbers",
                         arguments: {{many: 300}}}}}}
          - {{name: double, type: function, sparkStage: "{MODULE}:doubled", maxPeers: 1,
              options: {{path: "{store.url}/bundles"}}}}
          - {{name: sum, type: reduce, groupByKey: k, fluxPolicy: continue, maxPeers: 1}}
          - {{name: write, type: output, plugin: spark, maxPeers: 1,
              options: {{path: "{store.url}/out", stage: "{MODULE}:sorted_by_key"}}}}
        windows:
          - {{id: sums, task: sum, engine: spark, type: global, aggregation: [sum, n]}}
        triggers:
          - {{windowId: sums, type: watermark, refinement: accumulating, emit: "{MODULE}:row"}}
    """)


def job_on_spark(store: ObjectStore) -> dict[str, Any]:
    return manifest(f"""
        engine: spark
        spark: {{master: "local[1]"}}
        workflow: [[read, double], [double, write]]
        catalog:
          - {{name: read, type: input, plugin: generator,
              options: {{segments: 100, fn: "{MODULE}:numbered"}}}}
          - {{name: double, type: function, sparkStage: "{MODULE}:doubled",
              options: {{path: "{store.url}/bundles"}}}}
          - {{name: write, type: output, plugin: files,
              options: {{path: "{store.url}/out", format: parquet}}}}
    """)


@pytest.mark.slow
def test_all_that_spark_does_for_a_job_is_in_the_store(
    real_store: ObjectStore, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, fired = Spool.settle, list[str]()

    def settled(spool: Spool, target: Target, master: str) -> None:
        settle(spool, target, master)
        fired.extend(spool.files(target.name))

    monkeypatch.setattr(Spool, "settle", settled)
    state = StateSettings(url=f"{real_store.url}/state")
    settings = replace(Settings(), state=state)
    with with_test_env(4, modules=[module], settings=settings) as env:
        status = env.run(job_on_peers(real_store), WAIT_S)
    assert status.exception is None
    assert status.state == "completed"
    found = [key for key in real_store.keys("out/result/") if key.endswith(".parquet")]
    tables = [pq.read_table(pa.BufferReader(real_store.get(key))) for key in found]
    assert pa.concat_tables(tables).to_pylist() == [
        {"k": k, "total": sum(2 * n for n in range(k, 300, 3))} for k in range(3)
    ]
    assert fired, "the window was aggregated there"
    assert real_store.keys("state/") == [], "which goes with the job"
    for folder in ("snapshots/", "bundles/", "out/parts/"):
        assert real_store.keys(folder) != []


@pytest.mark.slow
def test_a_stage_in_the_middle_of_a_job_on_spark_has_its_files_there_and_leaves_none(
    real_store: ObjectStore, module: str
) -> None:
    with with_test_env(2, modules=[module]) as env:
        status = env.run(job_on_spark(real_store), WAIT_S)
        # Its peer removes them when it hears that the job has ended, as this test does.
        ends_s = time.monotonic() + WAIT_S
        while real_store.keys("bundles/") and time.monotonic() < ends_s:
            time.sleep(0.05)
    assert status.exception is None
    assert status.state == "completed"
    tables = [
        pq.read_table(pa.BufferReader(real_store.get(key))) for key in real_store.keys("out/part-")
    ]
    found = pa.concat_tables(tables).to_pylist()
    assert sorted(row["n"] for row in found) == [2 * n for n in range(100)]
    assert real_store.keys("bundles/") == []
