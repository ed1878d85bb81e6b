"""What an executor does to write rows to objects: each task of Spark its own, under names that no
other task and no other attempt has.

What a task has written counts only if the driver got its rows, so an attempt that Spark repeats, or
runs twice, adds nothing. With `ObjectTarget.notes` nothing is visible before the worker completes
the uploads, and each has a note, by which it can be aborted (`storage.staging.s3`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.errors import OnyxError
from onyx.spark.objects.bodies import Body, body, suffix
from onyx.spark.objects.carried import carried
from onyx.spark.objects.staged import ObjectTarget, Staged
from onyx.storage.objects.bucket import Bucket
from onyx.storage.objects.urls import parse_url
from onyx.storage.objects.writer import ObjectWriter, encode_note, note_of

FOUND = "onyx_partition_"
"""Columns with the values of partitions as text, behind the others, begin so."""
DDL = "staged string"
"""What `upload_rows` returns, for Spark."""
_SCHEMA = pa.schema([("staged", pa.string())])
NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(1, 32)))
"""Characters that Spark does not leave in the name of a partition."""


@prepared
class Upload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rows are to be written."""

    target: ObjectTarget
    form: str = "parquet"
    compression: str = "snappy"
    header: str = ""
    """The first line of each object."""
    of_spark: str = ""
    """The schema of the rows as Spark has it, for the footers of objects."""
    partition_by: tuple[str, ...] = ()
    """Names for the last columns, `FOUND...`, which are no part of the objects. Rows of one value
    are in sequence."""


def upload_rows(order: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task of Spark (for `mapInArrow`); what was written, as JSON."""
    from pyspark import TaskContext

    task = TaskContext.get()
    number, attempt = (
        (task.partitionId(), str(task.taskAttemptId())) if task else (0, uuid.uuid4().hex[:8])
    )
    with carried():
        staged = uploaded(msgspec.json.decode(order, type=Upload), number, attempt, batches)
    texts = [msgspec.json.encode(each).decode() for each in staged]
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=_SCHEMA)


def uploaded(
    order: Upload,
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
    body: Body
    rows: int = 0


class _Uploads:
    """The objects of one task, one after the other."""

    def __init__(self, order: Upload, name: str) -> None:
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
