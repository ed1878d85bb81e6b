"""A client of the cluster whose jobs are read: which job there is, where its output writes, and
what a window has gathered, as rows.

The only module here that reaches a cluster. No worker imports it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.client.appending import addresses_of
from onyx.client.client import Client
from onyx.client.query import state_reader
from onyx.client.window_view import Question, WindowView
from onyx.errors import UserError
from onyx.flow.columns.schemas import arrow_schema
from onyx.ids import JobId
from onyx.keystate.extents import ALL, Number
from onyx.keystate.selection import Selection
from onyx.log.opening import open_log
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import listed, nearest
from onyx.settings import Settings, from_environment
from onyx.spark_source.options import SourceOptions, WriteOptions
from onyx.spark_source.outputs import FoundOutput, output_at, readable
from onyx.storage.opening import absolute
from onyx.windows.units import is_time


def find(options: SourceOptions) -> FoundOutput:
    """The output of a job and a task.

    Raises:
        UserError: there is no such job or task, or its output cannot be read.
        Unavailable: ZooKeeper does not answer.
    """
    assert options.job is not None, "checked with the options"
    with connect(options) as client:
        entry = _output(job_of(client, options.job), options)
    path = absolute(str(entry.options["path"]), settings(options).data_dir)
    frame = entry.options.get("frame")
    output = output_at(path, options, entry.plugin, frame)
    # A result has other columns than the segments of which it was made.
    return FoundOutput(output, arrow_schema(entry) if output.content == "parts" else None)


def workers(options: WriteOptions) -> list[str]:
    """Addresses of the workers. Raises Unavailable: there is none, or ZooKeeper does not answer."""
    with connect(options) as client:
        return addresses_of(client.replica())


def settings(options: SourceOptions | WriteOptions) -> Settings:
    """The settings: those of ONYX_* variables, with what the options say."""
    found = from_environment(os.environ)
    if options.zookeeper is not None:
        address = replace(found.zookeeper, address=options.zookeeper)
        found = replace(found, zookeeper=address, log=replace(found.log, folder=""))
    if options.tenancy is not None:
        found = found.of(options.tenancy)
    return found


def connect(options: SourceOptions | WriteOptions) -> Client:
    """A client of the cluster; close it."""
    chosen = settings(options)
    return Client(open_log(chosen), chosen.job_scheduler)


def job_of(client: Client, job: str) -> Job:
    """The job with this id. Raises UserError when there is none."""
    try:
        return client.job(JobId(job))
    except UserError as error:
        named = [str(each.id) for each in client.statuses() if each.name == job]
        if not named:
            raise
        raise UserError(
            f"{job!r} is the name of a job; option 'job' takes the id: {listed(named)}"
        ) from error


def _output(job: Job, options: SourceOptions) -> CatalogEntry:
    outputs = {entry.name: entry for entry in job.catalog if entry.type == "output"}
    entry = outputs.get(str(options.task))
    if entry is None:
        hint = nearest(str(options.task), outputs) or f"its outputs are {listed(list(outputs))}"
        raise UserError(f"job {options.job} has no output {options.task!r}: {hint}")
    readable(str(entry.plugin), f"task {entry.name} of job {options.job}")
    return entry


_US_PER_MS = 1_000


def state_schema(options: SourceOptions) -> pa.Schema:
    """The schema of the rows of a window. Bounds are times where the window's are; else numbers."""
    assert options.job is not None, "checked with the options"
    with connect(options) as client:
        job = job_of(client, options.job)
    window = next((each for each in job.windows if each.id == options.window), None)
    if window is None:
        names = [each.id for each in job.windows]
        has = f"it has {listed(names)}" if names else "it has none"
        raise UserError(f"job {options.job} has no window {options.window!r}: {has}")
    amount = window.range or window.timeout_gap
    in_time = amount is not None and is_time(amount)
    bound = pa.timestamp("us", tz="UTC") if in_time else pa.float64()
    text = pa.string()
    columns = [("job", text), ("task", text), ("window", text), ("group", text)]
    return pa.schema([*columns, ("lower", bound), ("upper", bound), ("state", text)])


def state(options: SourceOptions, schema: pa.Schema) -> pa.RecordBatch:
    """The extents of a window, as of now.

    Raises:
        UserError: there is no such job or window, its state is not kept, there are more extents
            than asked for, or values do not fit the schema.
        Unavailable: not all peers concerned could answer.
    """
    assert options.job is not None, "checked with the options"
    assert options.window is not None, "asked only then"
    select = Selection(key=ALL if options.key is None else _key(options.key))
    question = Question(JobId(options.job), options.window, select, options.extents_max)
    with connect(options) as client:
        view = state_reader(client, settings(options)).read(question)
    if view.more:
        raise UserError(
            f"window {options.window} of job {options.job} has more than the "
            f"{len(view.extents)} extents that were asked for or can be sent: give a larger "
            "'extentsMax', or a 'key'"
        )
    return rows_of(view, schema)


def rows_of(view: WindowView, schema: pa.Schema) -> pa.RecordBatch:
    """A row for each extent.

    Raises:
        UserError: the schema has a column that there is not, or of a type that does not hold it.
    """
    found = {
        "job": [str(view.job)] * len(view.extents),
        "task": [view.task] * len(view.extents),
        "window": [view.window] * len(view.extents),
        "group": [each.group for each in view.extents],
        "lower": [_bound(each.lower, view.in_time) for each in view.extents],
        "upper": [_bound(each.upper, view.in_time) for each in view.extents],
        "state": [each.state for each in view.extents],
    }
    arrays = []
    for field in schema:
        if field.name not in found:
            hint = nearest(field.name, found) or f"there are {listed(list(found))}"
            raise UserError(f"the state of a window has no column {field.name!r}: {hint}")
        arrays.append(_array(field, found[field.name]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    as_text = pa.types.is_string(field.type)
    try:
        return pa.array([_text(each) for each in values] if as_text else values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UserError(
            f"column {field.name!r} is asked for as {field.type}, which does not hold its values: "
            f"{error}; as STRING it is JSON"
        ) from error


def _bound(bound: Number, in_time: bool) -> Number | None:
    if not math.isfinite(bound):
        return None
    return int(bound * _US_PER_MS) if in_time else float(bound)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()


def _key(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
