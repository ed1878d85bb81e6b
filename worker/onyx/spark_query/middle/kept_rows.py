"""Rows between fragments that Spark need not compute again: written to a folder that all processes
of the query see, and read from there."""

from __future__ import annotations

from typing import Any

from onyx.spark.objects.messages import ObjectTarget
from onyx.spark.objects.reading import fetched
from onyx.spark.objects.writing import UploadOrder, uploaded_frame
from onyx.spark_query.rows import DDL, SCHEMA
from onyx.storage.interface import Location

ROWS_AT_ONCE = 64
"""A row is a whole batch of segments."""


def keep_rows(spark: Any, frame: Any, folder: Location) -> Any:
    """A frame of rows, evaluated now, and read from a folder from now on."""
    if folder.local is not None:
        frame.write.parquet(str(folder.local))
        return spark.read.schema(DDL).parquet(str(folder.local))
    staged = uploaded_frame(frame, UploadOrder(ObjectTarget(str(folder), "part")))
    urls = [folder.path_of(each.name) for each in staged]
    return fetched(spark, urls, SCHEMA, DDL, ROWS_AT_ONCE)
