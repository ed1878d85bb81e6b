"""A DataFrame that executors write to an object store; the driver sees names and counts alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import FailsAgain
from onyx.spark.objects.bodies import has_kind
from onyx.spark.objects.forms import FORMS, compression, of_lines, with_header
from onyx.spark.objects.staged import ObjectTarget, Staged
from onyx.spark.objects.upload import DDL, FOUND, Upload, upload_rows, uploaded


def write_objects(
    frame: Any,
    target: ObjectTarget,
    form: str = "parquet",
    options: Mapping[str, Any] | None = None,
    partition_by: tuple[str, ...] = (),
) -> tuple[Staged, ...]:
    """Have the rows of a DataFrame written; what was written, in the order of the rows. Blocks.

    Args:
        form: of `FORMS`.
        options: of Spark's writer of this format (`forms.wrong_form`).
        partition_by: columns by whose values the objects are split into folders.

    Raises:
        FailsAgain: the columns do not fit the format.
        Exception: of Spark, in which `carried_in` may find an error of a store.
    """
    options = options or {}
    data = _data(frame, form, partition_by)
    shaped = _shaped(frame, form, options, data, partition_by)
    order = Upload(
        target,
        form,
        compression(form, options),
        _header(frame, options, data) if with_header(form, options) else "",
        frame.select(*map(_column, data)).schema.json() if form == "parquet" else "",
        partition_by,
    )
    found = uploaded_frame(shaped, order)
    if not found and not FORMS[form].lines and not partition_by:
        found = _columns_alone(shaped, order)
    return tuple(found)


def uploaded_frame(frame: Any, order: Upload) -> list[Staged]:
    """Have the rows of a DataFrame written as they are; see `write_objects`."""
    upload = partial(upload_rows, msgspec.json.encode(order))
    rows = frame.mapInArrow(upload, DDL).collect()
    found = (msgspec.json.decode(row[0], type=Staged) for row in rows)
    return sorted(found, key=lambda each: each.name)


def _data(frame: Any, form: str, partition_by: tuple[str, ...]) -> list[str]:
    """Columns that are in the objects."""
    lower = [name.lower() for name in frame.columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise FailsAgain(f"the result has several columns {twice[0]!r}: rename them")
    missing = [name for name in partition_by if name not in frame.columns]
    if missing:
        known = ", ".join(frame.columns)
        raise FailsAgain(f"write.partitionBy: the result has no {missing[0]!r}, but {known}")
    data = [name for name in frame.columns if name not in partition_by]
    if not data:
        raise FailsAgain("write.partitionBy: all columns of the result are in it")
    if form == "text" and (len(data) > 1 or frame.schema[data[0]].dataType.typeName() != "string"):
        raise FailsAgain(f"text has one column of strings, and the result {', '.join(data)}")
    if not FORMS[form].lines:
        _require_writable(frame, form, data)
    return data


def _require_writable(frame: Any, form: str, data: list[str]) -> None:
    """Executors write columns as Arrow has them, which has fewer types than Spark's own files."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    for name in data:
        kind = frame.schema[name].dataType
        try:
            arrow = to_arrow_type(kind, timezone="UTC")
        except PySparkTypeError:
            arrow = None
        if arrow is None or (form == "orc" and has_kind(arrow, kinds.is_duration, kinds.is_time)):
            raise FailsAgain(
                f"column {name!r} of type {kind.simpleString().upper()} cannot be written as "
                f"{form} to an object store: cast it to a number or to STRING"
            )


def _shaped(
    frame: Any,
    form: str,
    options: Mapping[str, Any],
    data: list[str],
    partition_by: tuple[str, ...],
) -> Any:
    """The columns of the objects, or their lines; then the values of partitions."""
    from pyspark.sql import functions as F

    values = [
        F.col(_quoted(name)).cast("string").alias(f"{FOUND}{number}")
        for number, name in enumerate(partition_by)
    ]
    columns = list(map(_column, data))
    if form in ("json", "csv"):
        lines = {"json": F.to_json, "csv": F.to_csv}[form]  # Connect takes no map without options
        columns = [lines(F.struct(*columns), of_lines(options) or None).alias("value")]
    shaped = frame.select(*columns, *values)
    if partition_by:
        shaped = shaped.sortWithinPartitions(*shaped.columns[-len(values) :])
    return shaped


def _header(frame: Any, options: Mapping[str, Any], data: list[str]) -> str:
    """The names of the columns, quoted as values are."""
    from pyspark.sql import functions as F

    names = F.struct(*(F.lit(name).alias(name) for name in data))
    one = frame.sparkSession.range(1).select(F.to_csv(names, of_lines(options) or None))
    return str(one.collect()[0][0])


def _columns_alone(shaped: Any, order: Upload) -> list[Staged]:
    """One object without rows, so that who reads the result finds its columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(shaped.schema, timezone="UTC")
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    return uploaded(order, 0, 0, [empty], empty=True)


def _column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
