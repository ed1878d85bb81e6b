"""The rows between the fragments of a query: batches of segments as they travel, and what a
fragment has to report.

A row is a batch and not a segment: Spark sorts and moves few rows, and segments keep every type
that they may have between peers. Columns with Spark's own types were rejected where Spark itself
does not look into segments, because a schema would have to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa

from onyx.codec.segments import decode, encode
from onyx.codec.values import decode_records
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.records import StatesRecord

DDL = (
    "fragment int, task string, bucket int, seq bigint, origin string, kind string, mark bigint, "
    "payload binary, upstream string"
)
"""The schema for Spark."""
SCHEMA = pa.schema(
    [
        ("fragment", pa.int32()),
        ("task", pa.string()),
        ("bucket", pa.int32()),
        ("seq", pa.int64()),
        ("origin", pa.string()),
        ("kind", pa.string()),
        ("mark", pa.int64()),
        ("payload", pa.binary()),
        ("upstream", pa.string()),
    ]
)
ORDER = ("fragment", "task", "bucket", "seq", "origin")
"""How a fragment wants its rows: group by group, and the rows of an origin as it made them."""
REPORTED = -1
"""Fragment of rows that are for the driver."""
Kind = Literal[
    "dicts", "columns", "states", "end", "pause", "idle",
    "token", "spool", "counts", "position", "held", "part", "result",
]  # fmt: skip
"""`states`: records of windows that were folded before the shuffle (`spark_query.folding.combine`).
`end`: nothing more comes from the origin. `pause`: nothing more in this micro-batch. `idle`: the
same, and nobody waits for its watermark meanwhile.
`position`: how far a partition was read for the micro-batch that `seq` is. `held`: what a bucket
knows behind it (`request.BucketState`). Both name their origin, and its *reading*: a random number
that is in the ending too, of all that its rows were made from (`spark_query.arrivals`).
`part`: a file for a Spark stage in the middle. `result`: one that it has made
(`spark_query.middle.stages`)."""
Ending = Literal["end", "pause", "idle"]
ENDINGS = ("end", "pause", "idle")


class Row(NamedTuple):
    """One row."""

    fragment: int
    """In which it is used."""
    task: str
    bucket: int
    """Number of the partition that it goes to."""
    seq: int
    """Rises among the rows of an origin."""
    origin: str
    """A partition of an input, or a bucket of a windowed task: whose event time `mark` is."""
    kind: Kind
    mark: int | None
    """The watermark of the origin behind this row; None: not known, or a row of the same moment
    follows. Of `end`: the greatest event time that the origin has had. Of `idle`: none counts."""
    payload: bytes
    upstream: str = ""
    """The task that has sent the segments, where the receiver keeps its parents apart."""


def segments_row(
    fragment: int,
    task: str,
    bucket: int,
    seq: int,
    origin: str,
    mark: int | None,
    segments: Segments,
    upstream: str = "",
) -> Row:
    """A row that holds a batch."""
    kind, payload = payload_of(segments)
    return Row(fragment, task, bucket, seq, origin, kind, mark, payload, upstream)


def report(
    kind: Kind, task: str, value: object, origin: str = "", seq: int = 0, reading: int | None = None
) -> Row:
    """A row for the driver, with a value that it decodes."""
    return Row(REPORTED, task, 0, seq, origin, kind, reading, msgspec.json.encode(value))


def segments_of(row: Row) -> Segments:
    """The batch of a row; an empty list if it is not about segments."""
    if row.kind == "columns":
        with pa.ipc.open_stream(row.payload) as reader:
            return Columns(reader.read_next_batch())
    return decode(row.payload) if row.kind == "dicts" else []


def payload_of(segments: Segments) -> tuple[Kind, bytes]:
    """Kind and payload of a row that holds a batch."""
    return format_of(segments).choose(_dicts, _columns)(segments)


def states_of(row: Row) -> list[StatesRecord]:
    """The states of a row of windows that were folded before the shuffle."""
    return [each for each in decode_records(row.payload) if isinstance(each, StatesRecord)]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as Spark takes them."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[number] for row in rows], field.type)
            for number, field in enumerate(SCHEMA)
        ],
        schema=SCHEMA,
    )


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch that Spark gives."""
    columns = [batch.column(name).to_pylist() for name in SCHEMA.names]
    return list(map(Row, *columns))


def _dicts(segments: list[Segment]) -> tuple[Kind, bytes]:
    return "dicts", encode(segments)


def _columns(columns: Columns) -> tuple[Kind, bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.record_batch.schema) as writer:
        writer.write_batch(columns.record_batch)
    payload: bytes = sink.getvalue().to_pybytes()
    return "columns", payload
