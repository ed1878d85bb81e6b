"""The options of every plugin that comes with Onyx.

Not beside the plugins, so that whoever only checks a job needs nothing of what they need: NumPy,
Arrow, Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.kafka.options import KafkaInputOptions, KafkaOutputOptions
from onyx.plugins.options import Options, wrong_place
from onyx.plugins.roll_limits import ROLL_LIMITS, TRANSACTION_BYTES_MAX, TRANSACTION_LIMITS
from onyx.plugins.spark_options import SparkOutputOptions

COMPRESSIONS = {"jsonl": ("none", "gzip"), "parquet": ("snappy", "none", "gzip", "zstd")}
"""Of parts, by format; the first is the default."""

RECORD_BYTES_MAX = 1_048_576
"""Half of what a segment may take: names of columns and the form of numbers come to it."""

_Type = Literal["int", "float", "str", "bool"]


class ChannelOptions(Options, frozen=True):
    channel: str
    """Name that the test gave to `open_channel`."""


class FilesInputOptions(Options, frozen=True):
    path: str | list[str]
    """Files or objects to read, or patterns (`data/*.csv`, `s3://bucket/logs/**/*.jsonl.gz`)."""
    format: Literal["jsonl", "text", "csv", "parquet"] | None = None
    """Without it, by the end of the name; compression is always by the end of the name."""
    header: bool = True
    """csv: the first record names the columns."""
    columns: list[str] | None = None
    """csv: names of the columns of files without a header."""
    delimiter: str | None = None
    """csv: one character; without it a comma, or a tab for `.tsv`."""
    types: dict[str, _Type] = msgspec.field(default_factory=dict)
    """csv: columns to convert from text. An empty field becomes null, except for `str`."""
    on_bad_record: Literal["fail", "segment"] = "fail"
    """`fail` the job, or give a `segment` `{"_error": ..., "_raw": ...}` in the record's place."""
    record_number: str | None = None
    """Key under which each segment gets the number of its record in the file, from 0."""
    file_name: str | None = None
    """Key under which each segment gets the path of its file."""
    record_bytes_max: Annotated[int, msgspec.Meta(ge=16, le=RECORD_BYTES_MAX)] = RECORD_BYTES_MAX
    """A longer record is a bad one: a segment of more than 2 MiB cannot travel."""

    def wrong(self) -> Iterator[Problem]:
        for path in [self.path] if isinstance(self.path, str) else self.path:
            yield from wrong_place("path", path)
        delimiter = self.delimiter
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            yield Problem("delimiter", "must be one character, not a quote or newline")
        if self.header and self.columns is not None:
            yield Problem("columns", "is for files without a header", "add header: false")
        if not self.header and not self.columns:
            yield Problem("columns", "is missing: header: false needs names")


class FilesOutputOptions(Options, frozen=True):
    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Directory or `s3://bucket/prefix` to write parts to. A directory is made if it is missing;
    what is there is left alone."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    compression: str | None = None
    """jsonl: `none` or `gzip`; parquet: `snappy`, `none`, `gzip` or `zstd`."""
    nan: Literal["error", "null", "text"] = "error"
    """jsonl: what to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`,
    `"Infinity"`."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.size_bytes
    """Start a new part at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.segments
    """Start a new part after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = ROLL_LIMITS.age_s
    """Start a new part after this time; keep it well below the input's `pendingTimeout`."""

    def wrong(self) -> Iterator[Problem]:
        yield from wrong_place("path", self.path)
        possible = COMPRESSIONS[self.format]
        if self.compression is not None and self.compression not in possible:
            can_be = f"{self.format} can be {', '.join(possible)}"
            yield Problem("compression", f"is {self.compression!r}, but {can_be}")


class GeneratorOptions(Options, frozen=True):
    segments: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many in all; without it, the job runs until it is killed."""
    rate_per_second: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Segments a second in all; without it, as fast as they are processed."""
    fn: str | None = None
    """`package.module:name` of a function from the number (int, from 0) to the segment, which
    must always be the same for the same number. Without it, segments are `{"n": number}`."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Numbers are dealt to so many partitions in turn; each is read by one peer."""


class SequenceOptions(Options, frozen=True):
    segments: list[dict[str, Any]]
    """What to read, in order."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Segments are dealt to so many partitions in turn; each is read by one peer."""


class BlackholeOptions(Options, frozen=True):
    """None."""


class FunctionOptions(Options, frozen=True):
    fn: str
    """`package.module:name` of the function to call; what it returns is ignored."""
    batch: bool = False
    """Call it once a batch with the list of segments, instead of once a segment."""


class SqlOutputOptions(Options, frozen=True):
    table: Annotated[str, msgspec.Meta(min_length=1)]
    """Table to write to, which is there already."""
    url: str | None = None
    """`postgresql://user@host/database`, `sqlite:///path`, or another URL of SQLAlchemy."""
    url_env: str | None = None
    """Variable of the workers' environment that holds the URL, for one with a password."""
    schema: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Schema of the tables; without it the one that the database takes."""
    columns: list[str] | dict[str, str] | None = None
    """Keys to write, or `{key: column}`. Without it every key of a segment is a column."""
    mode: Literal["insert", "upsert"] = "insert"
    """`insert` adds rows; `upsert` replaces the row with the same `keys`."""
    keys: list[str] = msgspec.field(default_factory=list)
    """upsert: columns of a primary key or unique constraint."""
    positions_table: Annotated[str, msgspec.Meta(min_length=1)] = "onyx_positions"
    """Table that says how far each writer has come; made if it is missing."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1, le=TRANSACTION_BYTES_MAX)] = (
        TRANSACTION_LIMITS.size_bytes
    )
    """End a transaction at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = TRANSACTION_LIMITS.segments
    """End a transaction after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = TRANSACTION_LIMITS.age_s
    """End a transaction after this time; keep it well below the input's `pendingTimeout`."""

    def wrong(self) -> Iterator[Problem]:
        if self.url is None and self.url_env is None:
            yield Problem("url", "is missing", "or name a variable that holds it with urlEnv")
        if self.url is not None and self.url_env is not None:
            yield Problem("urlEnv", "cannot be there together with url", "take one of them")
        if self.url is not None and "://" not in self.url:
            yield Problem("url", "is no URL, as postgresql://user@host/database or sqlite:///path")
        if self.columns is not None and not self.columns:
            yield Problem("columns", "is empty", "leave it out to write every key")
        if self.mode == "upsert" and not self.keys:
            yield Problem("keys", "is missing: upsert needs to know by what rows are the same")
        if self.mode == "insert" and self.keys:
            yield Problem("keys", "is only for mode: upsert")
        if self.positions_table == self.table:
            yield Problem("positionsTable", "is the table to write to", "it must be another one")


class StdoutOptions(Options, frozen=True):
    nan: Literal["error", "null", "text"] = "error"
    """What to write for NaN and infinities, which JSON lacks; `text` is `"NaN"`, `"Infinity"`."""


INPUT_OPTIONS: Mapping[str, type[Options]] = {
    "channel": ChannelOptions,
    "files": FilesInputOptions,
    "generator": GeneratorOptions,
    "kafka": KafkaInputOptions,
    "sequence": SequenceOptions,
}
OUTPUT_OPTIONS: Mapping[str, type[Options]] = {
    "blackhole": BlackholeOptions,
    "channel": ChannelOptions,
    "files": FilesOutputOptions,
    "function": FunctionOptions,
    "kafka": KafkaOutputOptions,
    "spark": SparkOutputOptions,
    "sql": SqlOutputOptions,
    "stdout": StdoutOptions,
}
