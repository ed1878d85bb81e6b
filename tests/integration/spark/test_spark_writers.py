"""Stages with frames, params and writers of Spark's own, on a real local Spark that stays warm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context
from tests.support.spark.outputs import output

from onyx.errors import UserFunctionError
from onyx.ids import JobId
from onyx.spark.stage.output import SparkOutput

pytestmark = pytest.mark.server
STAGES = """
def named(flights, carriers, least):
    from pyspark.sql import functions as F
    late = flights.where(F.col("delay") >= least)
    return late.join(carriers, "carrier").select("name", "carrier", "delay")

def same(frame):
    return frame

def counted(frame, url):
    table = frame.sparkSession.read.format("jdbc").options(url=url, dbtable="delays").load()
    return table.groupBy().count()
"""


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of a user's."""
    (tmp_path / "writing_stages.py").write_text(STAGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def made(
    folder: Path, stage: str | None, job: str = "job-1", task: str = "work", **options: Any
) -> SparkOutput:
    import writing_stages  # type: ignore[import-not-found]

    alike = options.pop("alike", {})
    given = {"path": str(folder / "out"), **options}
    functions = {}
    if stage is not None:
        given |= {"stage": f"writing_stages:{stage}", "master": "local[1]"}
        functions[given["stage"]] = getattr(writing_stages, stage)
    context = plugin_context(given, functions=functions, task=task)
    sink = output(replace(context, job=JobId(job), alike=alike))
    sink.upgrade(lambda: None)
    return sink


def written(sink: SparkOutput, *rows: dict[str, Any]) -> SparkOutput:
    sink.write(list(rows))
    sink.flush()
    return sink


@pytest.mark.slow
def test_frames_are_joined_and_split_into_partitions(stages: Path) -> None:
    other = {"path": str(stages / "out"), "frame": "carriers"}
    carriers = made(stages, None, task="carriers", frame="carriers")
    written(carriers, {"carrier": "AA", "name": "A"}, {"carrier": "BB", "name": "B"})
    flights = made(
        stages, "named", frame="flights", alike={"carriers": other}, stageParams={"least": 5},
        write={"partitionBy": ["carrier"], "options": {"compression": "gzip"}},
    )  # fmt: skip
    late = [{"carrier": "AA", "delay": 7}, {"carrier": "BB", "delay": 5}]
    written(flights, {"carrier": "AA", "delay": 1}, *late)
    flights.seal()
    result = stages / "out" / "result"
    rows = ds.dataset(result, partitioning="hive").to_table().to_pylist()
    assert sorted((row["name"], row["carrier"], row["delay"]) for row in rows) == [
        ("A", "AA", 7), ("B", "BB", 5),
    ]  # fmt: skip
    assert {path.parent.name for path in result.rglob("*.gz.parquet")} == {
        "carrier=AA",
        "carrier=BB",
    }


@pytest.mark.slow
def test_rows_are_appended_to_a_database_once_a_job(stages: Path) -> None:
    url = f"jdbc:derby:{stages / 'db'};create=true"
    write = {"format": "jdbc", "mode": "append", "options": {"url": url, "dbtable": "delays"}}
    for job in ("a", "b"):
        sink = written(made(stages, "same", job, write=write), {"delay": 1}, {"delay": 2})
        sink.seal()
        sink.seal()
    count = made(stages, "counted", "c", stageParams={"url": url})
    written(count, {"delay": 0}).seal()
    (found,) = (stages / "out" / "result").glob("*.parquet")
    assert pq.read_table(found).to_pylist() == [{"count": 4}]


@pytest.mark.slow
def test_a_format_that_spark_does_not_have_is_reported(stages: Path) -> None:
    sink = written(made(stages, "same", write={"format": "nothing", "mode": "append"}), {"n": 1})
    with pytest.raises(UserFunctionError, match="nothing"):
        sink.seal()
