"""The input `spark` with a real Spark: a job reads a DataFrame, and a worker is killed while its
snapshot is made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.jobs.yaml_jobs import FUNCTIONS, manifest

from onyx.plugins.protocol import START
from onyx.plugins.registry import build_input
from onyx.testing import TestEnv, with_test_env
from onyx.user_code.resolve import Resolver

pytestmark = pytest.mark.server
ROWS, PARTITIONS = 1_000, 3
WAIT_S = 300.0
FRAMES = """
import os, pathlib, time

def numbers(spark, rows, partitions=1):
    from pyspark.sql import functions as F
    frame = spark.range(0, rows, 1, partitions).withColumnRenamed("id", "n")
    return frame.withColumn("at", F.timestamp_seconds("n")).withColumn("r", F.rand())

def slow(spark, marker):
    from pyspark.sql import functions as F
    def wait(n):
        path = pathlib.Path(marker)
        if n == 1 and not path.exists():
            path.write_text(str(n))
            time.sleep(600)
        return n
    frame = spark.range(0, 4, 1, 2).withColumnRenamed("id", "n")
    return frame.withColumn("n", F.udf(wait, "bigint")("n"))
"""
JOB = """
    guarantee: exactly-once
    workflow: [[read, write]]
    catalog:
      - {name: read, type: input, plugin: spark, maxPeers: 2, batchFormat: FORMAT,
         options: {path: FOLDER/in, frame: "frames_of_a_user:numbers", master: "local[1]",
                   arguments: {rows: 1000, partitions: 3}}}
      - {name: write, type: output, plugin: files, maxPeers: 1, options: {path: FOLDER/out}}
"""
DYING = """
import sys
from tests.integration.spark.test_spark_input import source
from pathlib import Path
source(Path(sys.argv[1]), "dying").partitions()
"""


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on the import path with a module of a user's."""
    folder = tmp_path_factory.mktemp("frames")
    (folder / "frames_of_a_user.py").write_text(FRAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture(scope="module")
def env(frames: Path) -> Iterator[TestEnv]:
    with with_test_env(4, modules=[FUNCTIONS, "frames_of_a_user"]) as env:
        yield env


@pytest.mark.parametrize("form", [pytest.param("dicts", marks=pytest.mark.slow), "arrow"])
def test_a_job_reads_each_row_of_a_frame_once(env: TestEnv, tmp_path: Path, form: str) -> None:
    spec = JOB.replace("FOLDER", str(tmp_path)).replace("FORMAT", form)
    assert env.run(manifest(spec), WAIT_S).state == "completed"
    lines = [
        json.loads(line)
        for part in (tmp_path / "out").glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert sorted(each["n"] for each in lines) == list(range(ROWS))
    assert {each["n"]: each["at"] for each in lines}[61] == "1970-01-01T00:01:01Z"
    snapshots = [path for path in (tmp_path / "in").iterdir() if path.name != ".staging"]
    assert len(snapshots) == 1
    assert len(list(snapshots[0].glob("run-*/*.parquet"))) == PARTITIONS


def source(folder: Path, incarnation: str) -> Any:
    """A plugin as a worker builds it."""
    options = {
        "path": str(folder / "in"),
        "frame": "frames_of_a_user:slow",
        "arguments": {"marker": str(folder / "marker")},
        "master": "local[1]",
    }
    functions = {options["frame"]: Resolver(("frames_of_a_user",)).resolve(str(options["frame"]))}
    context = plugin_context(options, incarnation=incarnation, functions=functions)
    return build_input("spark", context)


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_snapshot_leaves_none_of_it(
    frames: Path, tmp_path: Path
) -> None:
    paths = os.pathsep.join([str(frames), *filter(None, sys.path), os.getcwd()])
    worker = subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path)], env={**os.environ, "PYTHONPATH": paths}
    )
    until_s = time.monotonic() + WAIT_S
    with contextlib.ExitStack() as ended:
        ended.callback(worker.wait)
        ended.callback(worker.kill)
        while not (tmp_path / "marker").exists():
            assert worker.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.2)
        os.kill(worker.pid, signal.SIGKILL)
    assert not list((tmp_path / "in").glob("*/_onyx.json"))
    again = source(tmp_path, "again")
    numbers = []
    for partition in again.partitions():
        reader = again.open(partition, START)
        numbers += [row["n"] for row in reader.read(10)]
        reader.close()
    assert sorted(numbers) == [0, 1, 2, 3]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["job-1.work"]
