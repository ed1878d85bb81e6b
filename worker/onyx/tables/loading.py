"""A table from its source: all partitions, each to its end, by the plugin of an input.

Nothing of it is accounted for, because nobody is told what became of a row: the table is there as a
whole, or the job does not begin. So any process reads it alone, without the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from onyx.errors import Unavailable, UserError
from onyx.flow.batch import Read, Segment, Segments, as_columns, runs_of
from onyx.flow.columns.record_batch import Columns, join
from onyx.flow.columns.schemas import arrow_schema
from onyx.joins.shares import names_of
from onyx.joins.table import Table
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Input
from onyx.plugins.starting import first_cursor
from onyx.program.bad_records import BadRecordFinder
from onyx.program.plugin_forms import SegmentsReader, segments_reader

ROWS_A_READ = 65_536
REST_S = 0.02
"""Before a source is asked again that has nothing now."""


def load_table(
    entry: CatalogEntry,
    plugin: Input,
    bytes_max: int,
    wanted: Callable[[], bool],
    keep: Callable[[Columns], Columns] | None = None,
) -> Table:
    """The table, as it is now in its source.

    Args:
        plugin: its own, which is closed.
        bytes_max: above it a table is refused.
        wanted: False when nobody waits for it any more.
        keep: takes from rows those that are kept; None: all are.

    Raises:
        Unavailable: it cannot be read now.
        UserError: it never can, or it is too large.
    """
    try:
        read = reads_of(entry, plugin, wanted)
        parts = _kept(entry, read, bytes_max, keep)
    finally:
        plugin.close()
    rows = join(parts) if parts else no_rows(entry)
    return Table(entry.name, rows, names_of(entry.key), entry.version_key)


def _kept(
    entry: CatalogEntry,
    read: Iterator[Columns],
    bytes_max: int,
    keep: Callable[[Columns], Columns] | None,
) -> list[Columns]:
    """Parts that have rows, or else one, which has columns at least."""
    parts: list[Columns] = []
    size_bytes = 0
    for rows in read:
        part = rows if keep is None else keep(rows)
        size_bytes += part.size_bytes if len(part) else 0
        if size_bytes > bytes_max:
            holder = "one peer" if entry.partitioned else "each worker process"
            raise too_large(f"table {entry.name}", bytes_max, holder)
        parts.append(part)
    return [part for part in parts if len(part)] or parts[:1]


def reads_of(entry: CatalogEntry, plugin: Input, wanted: Callable[[], bool]) -> Iterator[Columns]:
    """The rows of a table, as they are read. Raises as `load_table`."""
    schema = arrow_schema(entry)
    bad = BadRecordFinder(entry, plugin, None)
    for partition in plugin.partitions():
        cursor = first_cursor(plugin, partition)
        if cursor is None:
            continue
        reader, at = segments_reader(plugin.open(partition, cursor), columns=True), cursor.position
        try:
            for read in _reads(reader, entry, wanted):
                where = partial(_described, plugin, partition, at)
                for failures in bad.among_new(0, read, where):
                    for _, error in failures:
                        raise error
                at += len(read)
                for run in runs_of(read):
                    yield _columns(run, entry, schema)
        finally:
            reader.close()


def no_rows(entry: CatalogEntry) -> Columns:
    """What a table has whose source has nothing."""
    schema = arrow_schema(entry) or pa.schema([])
    return Columns(
        pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    )


def _reads(
    reader: SegmentsReader, entry: CatalogEntry, wanted: Callable[[], bool]
) -> Iterator[Read]:
    while wanted():
        read = reader.read(ROWS_A_READ)
        if len(read):
            yield read
        elif reader.exhausted():
            return
        else:
            time.sleep(REST_S)
    raise Unavailable(f"table {entry.name}: nobody waits for it any more")


def _described(plugin: Input, partition: str, first: int, row: int) -> str:
    return plugin.describe(partition, first + row)


def _columns(run: Segments, entry: CatalogEntry, schema: pa.Schema | None) -> Columns:
    columns, _, failures = as_columns(run, schema)
    for index, error in failures:
        shown: Segment | str = run[index] if isinstance(run, list) else ""
        raise UserError(f"table {entry.name}: a row does not fit: {error} {shown}".rstrip())
    return columns


def too_large(what: str, bytes_max: int, holder: str) -> UserError:
    """What is raised about a table, or a part of it, that would take too much memory."""
    return UserError(
        f"{what} has more than {bytes_max:,} bytes, which {holder} would hold: leave out columns "
        "that nobody looks up, or raise ONYX_TASK_TABLE_BYTES_MAX"
    )
