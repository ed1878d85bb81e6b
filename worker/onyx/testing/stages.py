"""A Spark stage in a test: a function of DataFrames, called with a few segments.

    def test_late_flights():
        assert run_stage(late, [{"carrier": "AA", "delay": 20.0}], least=15) == [...]

Segments go to Spark as those of a job do, by Parquet parts, and rows come back as segments: with
the types that a job would have, which `spark.createDataFrame` does not give. Rejected: a fixture of
pytest, because who has a session already would start a second one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.errors import UserError
from onyx.flow.batch import as_columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.protocol import START
from onyx.rights import EVERYTHING
from onyx.spark.child.environment import environment
from onyx.spark.child.request import EXACT_TYPES, StageRequest
from onyx.spark.child.run_stage import result_of, write
from onyx.spark.objects.reading import read_parts
from onyx.spark.processes import spark_scratch
from onyx.spark.session.opening import open_session
from onyx.spark.types import for_spark

MASTER = "local[1]"
READ_AT_ONCE = 1_000
_READ = CatalogEntry("rows", "input", plugin="files")
_JOB = Job("stage", ((_READ.name, "stage"),), (_READ,))


def run_stage(
    stage: Callable[..., Any],
    *frames: Sequence[Segment],
    session: Any = None,
    schemas: Mapping[str | int, str] | None = None,
    **named: Any,
) -> list[Segment]:
    """Run a stage over segments, in a session of Spark of this process.

    Args:
        stage: gets a DataFrame for each of `frames`, and `named`.
        frames: the segments of each.
        session: to run it in. Without it there is one on `local[1]` for the whole process, which
            starts with the first call and takes some seconds.
        schemas: the columns of frames in Spark's DDL, by position or name; needed for those without
            segments.
        named: further arguments: frames, which are lists of dicts, and params.

    Returns:
        The rows that it makes, as the tasks behind it get them.

    Raises:
        UserFunctionError: the stage failed.
        UserError: a segment has no form in Spark.
    """
    spark = _shared() if session is None else session
    for key, value in EXACT_TYPES.items():
        spark.conf.set(key, value)
    given = schemas or {}
    with tempfile.TemporaryDirectory(prefix="onyx-stage-") as folder:
        place = Path(folder)
        read: list[tuple[str | None, Any]] = [
            (None, _frame(spark, place / f"{at}.parquet", segments, given.get(at)))
            for at, segments in enumerate(frames)
        ]
        of_names = {name: each for name, each in named.items() if _is_frame(each) or name in given}
        read += [
            (name, _frame(spark, place / f"{name}.parquet", segments, given.get(name)))
            for name, segments in of_names.items()
        ]
        params = {name: value for name, value in named.items() if name not in of_names}
        target = place / "result"
        request = StageRequest(
            getattr(stage, "__name__", "stage"),
            target=str(target),
            params=params,
            as_segments=True,
        )
        write(result_of(stage, read, request), request, lambda: None)
        return _rows(target)


def _is_frame(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is dict for each in value)


def _frame(spark: Any, path: Path, segments: Sequence[Segment], schema: str | None) -> Any:
    if not segments:
        return read_parts(spark, [], schema)
    columns, _, failures = as_columns(list(segments))
    if failures:
        index, error = failures[0]
        raise UserError(f"segment {index}: {error}") from error
    pq.write_table(for_spark(pa.Table.from_batches([columns.record_batch])), path)
    return read_parts(spark, [str(path)], schema)


def _rows(folder: Path) -> list[Segment]:
    def nothing(name: str) -> Any:
        raise AssertionError(f"files need no function, and {name} was asked for")

    stage = JobId("stage")
    context = context_of(
        _JOB, _READ, stage, PeerId("stage"), GroupId("stage"), SystemClock(), nothing
    )
    context = replace(context, rights=EVERYTHING)
    files = FilesInput(
        context, FilesInputOptions(path=f"{folder}/*.parquet", hive_partitioning=False)
    )
    found: list[Segment] = []
    for path in sorted(folder.glob("*.parquet")):
        reader = files.open(str(path), START)
        while not reader.exhausted():
            found += reader.read(READ_AT_ONCE)
        reader.close()
    return found


@cache
def _shared() -> Any:
    """The session of this process, which ends with it."""
    scratch = spark_scratch()
    os.environ.update(environment(MASTER, str(scratch.path)))
    return open_session(MASTER, "onyx tests of stages", scratch.path, {}, quick=True)
