"""The options of the input `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from onyx.errors import Problem
from onyx.model.names import is_function
from onyx.plugins.options import Options, wrong_folder
from onyx.spark.session.masters import SparkMaster, wrong_spark_master


class SparkInputOptions(Options, frozen=True, kw_only=True):
    """Which DataFrame is read, where it is evaluated, and where its snapshot lies."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Folder for snapshots, which all workers of the task and Spark must see; or
    `s3://bucket/path`."""
    frame: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """`package.module:name` of a function from a SparkSession to a DataFrame."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of `frame`, JSON values."""
    format: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Instead of `frame`: a format that Spark reads, `parquet`, `csv`, `jdbc`, ..."""
    format_options: dict[str, str] = msgspec.field(default_factory=dict)
    """Options of this format, such as `path`."""
    format_options_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Options whose values are in variables of the workers' environment, as passwords are."""
    schema: str | None = None
    """Columns of this format in Spark's DDL, `row BIGINT, delay DOUBLE`."""
    master: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """`local[*]`, `spark://host:port`, or `sc://host:port` for Spark Connect. By default that of
    `spec.spark`, or of the worker (`ONYX_SPARK_MASTER`)."""
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark, on top of those of `spec.spark` unless there is a `master` here; with
    `sc://` those of a session."""
    snapshot_timeout: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    """Longest time to evaluate the DataFrame, in seconds."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_folder("path", self.path)
        if (self.frame is None) == (self.format is None):
            yield Problem("frame", "or `format` has to say what is read: one of them")
        if self.frame is not None and not is_function(self.frame):
            yield Problem("frame", "is not the name of a function", "write package.module:name")
        if self.frame is None and self.arguments:
            yield Problem("arguments", "are those of `frame`, which is missing")
        given = {
            "formatOptions": bool(self.format_options),
            "formatOptionsEnv": bool(self.format_options_env),
            "schema": self.schema is not None,
        }
        for key in (key for key, is_given in given.items() if is_given and self.format is None):
            yield Problem(key, "belongs to `format`, which is missing")
        if self.master is not None:
            yield from wrong_spark_master(SparkMaster(self.master, self.spark_conf))
