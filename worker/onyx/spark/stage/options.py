"""The options of the output `spark`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.base.structs import prepared
from onyx.errors import Problem
from onyx.model.report import at, show
from onyx.plugins.options import PartOptions, climbing
from onyx.spark.child.request import FILE_FORMATS, Mode
from onyx.spark.objects.forms import wrong_form
from onyx.spark.session.masters import SparkMaster, wrong_spark_master
from onyx.storage.opening import absolute, is_remote

_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z"
Identifier = Annotated[str, msgspec.Meta(pattern=_IDENTIFIER)]
"""A name that a Python function may give to an argument."""
_OF_A_STAGE = ("master", "write", "stage_params", "stage_timeout", "spark_conf")


@prepared
class WriteOptions(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """How Spark writes the DataFrame that a stage returns."""

    format: Annotated[str, msgspec.Meta(min_length=1)] = "parquet"
    """What `DataFrameWriter.format` takes: `parquet`, `json`, `csv`, `orc`, ..., or one that does
    not write files, such as `jdbc`."""
    mode: Mode | None = None
    """What becomes of what is there. By default files are overwritten; others need one."""
    partition_by: tuple[str, ...] = ()
    """Columns by whose values the files are split into folders."""
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """Options of the format."""
    options_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Options whose values are in variables of the workers' environment, as passwords are."""
    repeat: bool = False
    """Whether a write that failed may be done again although it may have written rows."""


class SparkOptions(PartOptions, frozen=True, kw_only=True):
    """Which stage runs over the parts, and where.

    `path` holds `parts/` and `result/`. All workers of the task and Spark must see it.
    """

    stage: str | None = None
    """`package.module:name` of a function from DataFrame to DataFrame. Of several outputs with the
    same `path` exactly one has a stage."""
    frame: Identifier | None = None
    """Name of the argument that gets the segments of this output as a DataFrame; needed when
    several outputs have the same `path`."""
    stage_params: dict[Identifier, Any] = msgspec.field(default_factory=dict)
    """Further arguments of the stage, by their names."""
    master: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """`local[*]`, `spark://host:port`, or `sc://host:port` for Spark Connect. By default that of
    `spec.spark`, or of the worker (`ONYX_SPARK_MASTER`)."""
    write: WriteOptions = WriteOptions()
    """How the result is written."""
    schema: str | None = None
    """Columns of the segments in Spark's DDL (`row BIGINT, delay DOUBLE`). Without it they are
    taken from the parts, and no stage runs when there is not a single segment."""
    stage_timeout: Annotated[float, msgspec.Meta(gt=0)] = 3_600.0
    """Longest run of the stage in seconds."""
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of Spark (`spark.driver.memory: 4g`), on top of those of `spec.spark` unless there
    is a `master` here; with `sc://` those of a session (`spark.sql.shuffle.partitions: "64"`), for
    the others are the server's."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        yield from climbing("path", self.path)
        yield from self._wrong_stage()
        yield from _wrong_write(self.write)
        if is_remote(self.path) and self.write.format in FILE_FORMATS:
            yield from wrong_form(self.write.format, self.write.options)
        if self.master is not None:
            yield from wrong_spark_master(SparkMaster(self.master, self.spark_conf))

    def _wrong_stage(self) -> Iterator[Problem]:
        if self.stage is None and self.frame is None:
            yield Problem("stage", "is missing")
        if self.stage is None and self.frame is not None:
            plain = SparkOptions(path=self.path, frame=self.frame)
            for field in msgspec.structs.fields(self):
                given = getattr(self, field.name) != getattr(plain, field.name)
                if field.name in _OF_A_STAGE and given:
                    what = "belongs to a stage, and this output has none"
                    yield Problem(field.encode_name, what)


def _wrong_write(write: WriteOptions) -> Iterator[Problem]:
    if write.format in FILE_FORMATS:
        if write.mode in ("errorifexists", "ignore"):
            what = f"is {write.mode!r}, which a result in files does not know"
            yield Problem("write.mode", what, "overwrite or append")
        if write.repeat:
            yield Problem("write.repeat", "says nothing: files are published once")
    elif write.mode is None:
        what = f"is missing: what is there already may be of others, as {write.format} is no files"
        yield Problem("write.mode", what, "overwrite, append, errorifexists or ignore")
    for index, column in enumerate(write.partition_by):
        if not is_plain_name(column):
            what = f"is {show(column)}, which cannot be in the names of folders"
            yield Problem(at("write.partitionBy", index), what, f"use {PLAIN_NAMES}")
        elif column in write.partition_by[:index]:
            yield Problem(at("write.partitionBy", index), f"is {show(column)} again", "remove it")
    if write.partition_by and write.format not in FILE_FORMATS:
        what = f"is for files, and {write.format} is none"
        yield Problem("write.partitionBy", what, "remove it")
    for key in write.options_env.keys() & write.options.keys():
        yield Problem(f"write.optionsEnv.{key}", "is in options too")


def is_frame(name: object) -> bool:
    """Whether a frame may be called so."""
    return isinstance(name, str) and re.match(_IDENTIFIER, name) is not None


def same_result(options: Mapping[str, Any]) -> str:
    """What two outputs have in common that feed one stage."""
    return absolute(str(options.get("path", "")), "").rstrip("/")
