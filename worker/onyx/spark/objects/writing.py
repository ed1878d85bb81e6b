"""A DataFrame that executors write to an object store; the driver sees names and counts alone.

Each task of Spark writes its own objects, under names that no other task and no other attempt has.
What a task has written counts only if the driver got its rows, so an attempt that Spark repeats, or
runs twice, adds nothing. With `ObjectTarget.notes` nothing is visible before the worker completes
the uploads, and each has a note, by which it can be aborted (`storage.staging.s3`).
"""

from __future__ import annotations

import contextlib
import gzip
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.errors import FailsAgain, OnyxError
from onyx.plugins.files.spark_footer import ROW_METADATA
from onyx.spark.objects.forms import FORMS, compression, of_lines, with_header
from onyx.spark.objects.messages import ObjectTarget, Staged, carried
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.urls import parse_url
from onyx.storage.objects.writer import ObjectWriter, encode_note, note_of

PARTITION_COLUMN = "onyx_partition_"
"""Columns with the values of partitions as text, behind the others, begin so."""
DDL = "staged string"
"""What `upload_rows` returns, for Spark."""
_SCHEMA = pa.schema([("staged", pa.string())])
NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(1, 32)))
"""Characters that Spark does not leave in the name of a partition."""
GROUP_ROWS_MAX = 262_144
GROUP_BYTES_MAX = 67_108_864
"""The size of rows that are gathered: in memory, they are a group of rows of a file."""
GZIP_LEVEL = 6
_ENDINGS: Mapping[str, str] = {"text": "txt"}


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
    order = UploadOrder(
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


def uploaded_frame(frame: Any, order: UploadOrder) -> list[Staged]:
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
        F.col(_quoted(name)).cast("string").alias(f"{PARTITION_COLUMN}{number}")
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


def _columns_alone(shaped: Any, order: UploadOrder) -> list[Staged]:
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


@prepared
class UploadOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rows are to be written."""

    target: ObjectTarget
    form: str = "parquet"
    compression: str = "snappy"
    header: str = ""
    """The first line of each object."""
    of_spark: str = ""
    """The schema of the rows as Spark has it, for the footers of objects."""
    partition_by: tuple[str, ...] = ()
    """Names for the last columns, `PARTITION_COLUMN...`, which are no part of the objects. Rows of
    one value are in sequence."""


def upload_rows(order: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task of Spark (for `mapInArrow`); what was written, as JSON."""
    from pyspark import TaskContext

    task = TaskContext.get()
    number, attempt = (
        (task.partitionId(), str(task.taskAttemptId())) if task else (0, uuid.uuid4().hex[:8])
    )
    with carried():
        staged = uploaded(msgspec.json.decode(order, type=UploadOrder), number, attempt, batches)
    texts = [msgspec.json.encode(each).decode() for each in staged]
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=_SCHEMA)


def uploaded(
    order: UploadOrder,
    number: int,
    attempt: int | str,
    batches: Iterable[pa.RecordBatch],
    empty: bool = False,
) -> list[Staged]:
    """Write rows.

    Args:
        number: of the task of Spark, by which the objects are in the order of the rows.
        attempt: tells attempts of the same task apart.
        empty: whether a batch without rows is an object too, which has its columns.

    Raises:
        UserError: the store refuses.
        Unavailable: it cannot be reached.
    """
    uploads = _Uploads(order, f"{order.target.run}-{number:05d}-{attempt}")
    try:
        for batch in batches:
            if batch.num_rows or empty:
                uploads.add(batch)
        return uploads.finish()
    except BaseException:
        uploads.drop()
        raise


class _Object(msgspec.Struct):
    """One that is being written."""

    name: str
    note: str
    writer: ObjectWriter
    body: ObjectBody
    rows: int = 0


class _Uploads:
    """The objects of one task, one after the other."""

    def __init__(self, order: UploadOrder, name: str) -> None:
        self._order = order
        self._name = name
        self._url = parse_url(order.target.url)
        self._bucket = Bucket(self._url.bucket)
        self._object: _Object | None = None
        self._folder = ""
        self._staged: list[Staged] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows, of each partition to its own object."""
        count = len(self._order.partition_by)
        if not count:
            self._write("", batch)
            return
        width = batch.num_columns - count
        data = batch.select(range(width))
        values = [batch.column(at).to_pylist() for at in range(width, width + count)]
        folders = [_folder(self._order.partition_by, each) for each in zip(*values, strict=True)]
        first = 0
        for at in range(1, len(folders) + 1):
            if at == len(folders) or folders[at] != folders[first]:
                self._write(folders[first], data.slice(first, at - first))
                first = at

    def finish(self) -> list[Staged]:
        """Make all durable; what there is."""
        self._close()
        return self._staged

    def drop(self) -> None:
        """Give up what can be given up; what is left is aborted by its notes."""
        if self._object is not None:
            with contextlib.suppress(OnyxError):
                self._object.writer.abort()
        for each in self._staged:
            with contextlib.suppress(OnyxError):
                if each.upload:
                    self._bucket.abort_upload((self._url / each.name).key, each.upload)
                else:
                    self._bucket.delete((self._url / each.name).key)

    def _write(self, folder: str, batch: pa.RecordBatch) -> None:
        if self._object is None or folder != self._folder:
            self._close()
            self._object, self._folder = self._opened(folder), folder
        self._object.body.add(batch)
        self._object.rows += batch.num_rows
        self._object.writer.make_room()

    def _opened(self, folder: str) -> _Object:
        order = self._order
        base = f"{self._name}-{len(self._staged)}" if order.partition_by else self._name
        base += suffix(order.form, order.compression)
        name = f"{folder}{base}"
        key = (self._url / name).key
        note = "" if order.target.notes is None else note_of(parse_url(order.target.notes), key).key

        def started(upload: str) -> None:
            if note:
                self._bucket.put(note, encode_note(key, upload))

        writer = ObjectWriter(self._bucket, key, started)
        return _Object(
            name,
            note,
            writer,
            body(writer, order.form, order.compression, order.header, order.of_spark),
        )

    def _close(self) -> None:
        """Settle the present object, and complete it unless the worker does."""
        if self._object is None:
            return
        done = self._object
        done.body.finish()
        done.writer.settle()
        staged = Staged(done.name, done.rows, done.writer.tell())
        if done.note:
            upload = done.writer.upload()
            staged = replace(staged, upload=upload["upload"], tags=tuple(upload["tags"]))
        else:
            done.writer.complete()
        self._staged.append(staged)
        self._object = None


def _folder(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """`carrier=AA/year=2026/`, as Spark names the folders of partitions."""
    pairs = zip(names, values, strict=True)
    return "".join(
        f"{_escaped(name)}={_escaped(value) if value else NULL}/" for name, value in pairs
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


class ObjectBody(Protocol):
    """The body of one object."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        ...

    def finish(self) -> None:
        """Write what is left."""
        ...


class ColumnsObject:
    """Parquet or ORC: rows are gathered, because each write makes a group of its own."""

    def __init__(
        self, file: Any, opened: Callable[[Any, pa.Schema], Any], of_spark: str = ""
    ) -> None:
        """
        Args:
            opened: a writer of tables with a schema.
            of_spark: the schema as Spark has it, for the footer; empty if nobody needs it.
        """
        self._file = file
        self._opened = opened
        self._of_spark = of_spark
        self._writer: Any = None
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows. An empty batch says what the columns are."""
        batch = self._as_spark_writes(batch)
        if self._writer is None:
            self._writer = self._opened(self._file, batch.schema)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._flush()

    def finish(self) -> None:
        """Write what is left."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _as_spark_writes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as in Spark's own files, which have times of day in microseconds: Spark hands
        them over in nanoseconds."""
        if any(has_kind(field.type, kinds.is_time) for field in batch.schema):
            batch = batch.cast(
                pa.schema([field.with_type(_in_microseconds(field.type)) for field in batch.schema])
            )
        metadata = {ROW_METADATA: self._of_spark} if self._of_spark else None
        return batch.replace_schema_metadata(metadata)

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_table(table, row_group_size=GROUP_ROWS_MAX)
        else:
            self._writer.write(table)


class LinesObject:
    """The only column, a line a row."""

    def __init__(self, file: Any, header: str, packed: bool) -> None:
        self._out = gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) if packed else file
        self._packed = packed
        if header:
            self._write([header])

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._write([line or "" for line in batch.column(0).to_pylist()])

    def finish(self) -> None:
        """Write what is left."""
        if self._packed:
            self._out.close()

    def _write(self, lines: list[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines).encode())


def has_kind(kind: pa.DataType, *wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is one of some, or holds values of one."""
    within = [kind.field(at).type for at in range(kind.num_fields)]
    return any(each(kind) for each in wanted) or any(has_kind(each, *wanted) for each in within)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_time(kind):
        return pa.time64("us")
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if kinds.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    if kinds.is_struct(kind):
        return pa.struct([each.with_type(_in_microseconds(each.type)) for each in kind.fields])
    return kind


def body(file: Any, form: str, compression: str, header: str, of_spark: str = "") -> ObjectBody:
    """For a format of `forms.FORMS`; `of_spark` see `ColumnsObject`."""
    if form == "parquet":
        return ColumnsObject(
            file, lambda to, schema: pq.ParquetWriter(to, schema, compression=compression), of_spark
        )
    if form == "orc":
        from pyarrow import orc

        return ColumnsObject(file, lambda to, _: orc.ORCWriter(to, compression=compression))
    return LinesObject(file, header, compression == "gzip")


def suffix(form: str, compression: str) -> str:
    """How the names of objects end."""
    columns = {"parquet": ".parquet", "orc": ".orc"}
    packed = ".gz" if compression == "gzip" else ""
    return columns.get(form) or f".{_ENDINGS.get(form, form)}{packed}"
