"""Spark's physical plans of what it runs of a job: stages, and windows of a job on peers, over
parts without rows. That of a whole job is in `spark_query.explain`.

A plan depends on the columns, so a stage needs the schema of what comes to it; it does not depend
on how many rows there are, but for broadcasts and for what adaptive execution changes while it
runs. The parts are Parquet files, as in a job: over a DataFrame without rows Spark plans nothing.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.errors import OnyxError
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.model.job.windows import Window
from onyx.model.kinds import AGGREGATIONS, WINDOWS, aggregation_name
from onyx.plugins.context import context_of
from onyx.plugins.options import read_options
from onyx.plugins.protocol import PluginContext
from onyx.rights import EVERYTHING
from onyx.spark.child.request import EXACT_TYPES, StageRequest
from onyx.spark.child.run_stage import given, queried, result_of
from onyx.spark.middle.request import options_of
from onyx.spark.middle.request import request_of as request_of_middle
from onyx.spark.stage.frames import request_of
from onyx.spark.stage.options import SparkOptions
from onyx.spark.windows.aggregate import aggregate
from onyx.spark.windows.plan import INT, KEY_TEXT, SHARD, Piece, Plan, SessionRule
from onyx.windows.units import standard

Resolve = Callable[[str], Callable[..., Any]]
MODE = "formatted"
"""A plan with a paragraph for each operator, as Spark calls it."""


def explained(job: Job, resolve: Resolve, session: Any, folder: Path) -> Iterator[str]:
    """What Spark would do, a text for each stage and each window by Spark.

    Args:
        resolve: finds functions of the job.
        session: of Spark.
        folder: for parts without rows.
    """
    for key, value in EXACT_TYPES.items():
        session.conf.set(key, value)
    clock = SystemClock()
    for entry in job.catalog:
        context = context_of(
            job, entry, JobId(job.name), PeerId("plan"), GroupId("plan"), clock, resolve
        )
        request = _request(entry, replace(context, rights=EVERYTHING))  # nothing is read
        if request is not None:
            found = _of_stage(request, resolve, session, folder)
            yield f"stage {request.stage} of task {entry.name}\n{found}"
    for window in job.windows:
        if window.engine == "spark" and job.engine != "spark":
            found = _of_window(window, job.entry(window.task), session, folder)
            yield f"window {window.id} of task {window.task}\n{found}"


def _request(entry: CatalogEntry, context: PluginContext) -> StageRequest | None:
    if entry.stage is not None:
        return request_of_middle(context, options_of(context))
    if entry.type == "output" and entry.plugin == "spark":
        return request_of(context, read_options(context, SparkOptions))
    return None


def _of_stage(request: StageRequest, resolve: Resolve, session: Any, folder: Path) -> str:
    for frame in request.frames:
        if frame.schema is None:
            which = "what comes to it" if frame.name is None else f"frame {frame.name}"
            return f"  not known before there are segments: give a schema of {which}"
    try:
        frames = [
            replace(each, parts=(_part(session, str(each.schema), folder, str(at)),))
            for at, each in enumerate(request.frames)
        ]
        asked = replace(request, frames=tuple(frames))
        read = given(session, asked)
        if asked.query is not None:
            return shown(queried(session, read, asked))
        return shown(result_of(resolve(asked.stage), read, asked))
    except OnyxError as error:
        return f"  it cannot be planned: {error}"


def _part(session: Any, ddl: str, folder: Path, name: str) -> str:
    """A part of these columns without rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(session.createDataFrame([], ddl).schema, timezone="UTC")
    return _written(schema, folder / f"{name}.parquet")


def _of_window(window: Window, entry: CatalogEntry, session: Any, folder: Path) -> str:
    """The plan of a firing of all extents, with groups that are text and values that are ints."""
    path = _written(pa.schema([(SHARD, pa.int16())]), folder / f"window-{window.id}.parquet")
    kind, native = WINDOWS[window.type], AGGREGATIONS[aggregation_name(window.aggregation)].native
    assert native is not None, "validated: Spark computes it"
    groups = (KEY_TEXT,) if entry.group_by_key or entry.group_by_fn else ()
    sessions = None
    if not kind.known:
        assert window.timeout_gap is not None, "validated: a session has a gap"
        sessions = SessionRule(standard(window.timeout_gap))
    plan = Plan(
        aggregation_name(window.aggregation),
        native,
        (*groups, *((INT,) if native.merges else ())),
        (Piece((path,)),),
        kind.overlapping,
        sessions=sessions,
        extent=0 if window.type == "global" else None,
    )
    return shown(aggregate(session, **plan.params()))


def _written(schema: pa.Schema, path: Path) -> str:
    pq.write_table(schema.empty_table(), path)
    return str(path)


def shown(frame: Any) -> str:
    """The physical plan of a frame."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        frame.explain(mode=MODE)
    return text.getvalue().strip()
