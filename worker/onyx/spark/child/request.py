"""What a stage is asked to do, and who follows it while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from onyx.base.structs import prepared
from onyx.plugins.protocol import SealProgress
from onyx.spark.objects.messages import ObjectTarget

EXACT_TYPES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.timeType.enabled": "true",
}
"""Settings of a session that reads segments and whose Parquet files others read: Spark's own type
of moments has no time zone elsewhere, and times of day it has only if asked."""
FILE_FORMATS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats of Spark that write a folder of files. The worker publishes it; others publish
themselves."""
Mode = Literal["overwrite", "append", "errorifexists", "ignore"]


@prepared
class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A DataFrame that a stage gets."""

    name: str | None = None
    """Name of the argument; None: the only one, given by its position."""
    parts: tuple[str, ...] = ()
    """Parquet files to read, absolute paths; or objects, all of them `s3://...`. May be empty if
    `schema` is given."""
    schema: str | None = None
    """Spark's DDL of the segments (`row BIGINT, delay DOUBLE`); None takes it from the parts."""

    @property
    def known(self) -> bool:
        """Whether its columns are."""
        return bool(self.parts) or self.schema is not None


@prepared
class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the result is written."""

    format: str = "parquet"
    mode: Mode = "overwrite"
    """The mode of a format that writes no files."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    repeat: bool = False
    """Whether a direct write may be done again although it may have written rows."""

    @property
    def appends(self) -> bool:
        """Whether the result is a further part of what is there."""
        return self.mode == "append" and not self.direct

    @property
    def direct(self) -> bool:
        """Whether Spark writes to where it is seen at once."""
        return self.format not in FILE_FORMATS


class FrameSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A DataFrame that is made from nothing but a session."""

    format: str | None = None
    """What `spark.read` reads. None: `stage` is a function from a SparkSession."""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    schema: str | None = None
    """The schema of the format, in Spark's DDL."""


@prepared
class StageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a stage."""

    stage: str
    """`package.module:name` of a function of DataFrames that returns one."""
    frames: tuple[Frame, ...] = (Frame(),)
    target: str = ""
    """Directory to write the result to; it does not exist yet, its parent does. With `objects` a
    file for the names of what was written (`objects.messages.read_list`)."""
    objects: ObjectTarget | None = None
    """Where the result goes, if that is an object store."""
    query: str | None = None
    """SQL over the frames, which are views of their names, instead of the function; `stage` only
    names it then."""
    write: Write = Write()
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further arguments of the function, or values of `:name` in the query."""
    master: str = "local[*]"
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    session_conf: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of SQL for this run alone, which need no child of their own. Those of `spark_conf`
    count first."""
    name: str = "onyx stage"
    """Shown by Spark."""
    as_segments: bool = False
    """Whether the rows of the result become segments."""
    source: FrameSource | None = None
    """Instead of `frames`, what the DataFrame comes from. With a format `stage` only names it."""

    def written_to(self, target: str, objects: ObjectTarget | None = None) -> StageRequest:
        """The request, for a result there."""
        return msgspec.structs.replace(self, target=target, objects=objects)


class Watch(msgspec.Struct, frozen=True):
    """Who follows a run. Called by the thread that waits for it."""

    wanted: Callable[[], bool] = lambda: True
    """Whether the run is still wanted; when not, it is cancelled."""
    seen: Callable[[SealProgress], None] = lambda _: None
    """Takes how far the run is, about once a second."""
    begin_write: Callable[[], None] = lambda: None
    """Called before Spark begins a direct write, which begins when this has returned."""


class StageRunner(Protocol):
    """Runs a stage to its end: `runner.run_in_child` in production."""

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        """Write the result to `request.target`.

        Raises:
            FailsAgain: the stage raised.
            UserFunctionError: it took longer than `timeout_s`, or failed for a reason that may go
                away.
            Unavailable: Spark could not be started, or its process died.
            Fenced: the run was not wanted any more, and was ended.
        """
        ...
