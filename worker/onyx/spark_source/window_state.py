"""What a window has gathered, as rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from onyx.client.query import state_reader
from onyx.client.window_view import Question, WindowView
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.keystate.extents import ALL, Number
from onyx.keystate.selection import Selection
from onyx.model.report import listed, nearest
from onyx.spark_source.cluster import connect, job_of, settings
from onyx.spark_source.options import SourceOptions
from onyx.windows.units import is_time

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
