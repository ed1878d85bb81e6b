"""A table in parts on the local disk, of which a process holds in memory those that it looks up.

A process of Spark works on one bucket after the other, and Spark says which. So it reads the source
once, as of any table, deals the rows to the buckets in one file, and loads the part of a bucket
when its segments come. Parts stay as long as all together have no more bytes than one table may
have. The file has no name, so nothing is left of it when the process dies, however it does.

Rejected: to read the source for each bucket, which takes as many reads as there are buckets, in
each micro-batch, of a table that is too large for a process.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.errors import Unavailable, describe
from onyx.flow.columns.record_batch import Columns, join
from onyx.joins.shares import Dealing, names_of
from onyx.joins.table import Table, require_alike
from onyx.model.job import CatalogEntry
from onyx.plugins.protocol import Input
from onyx.tables.loading import ROWS_A_READ, no_rows, reads_of, too_large


class _Piece(NamedTuple):
    """Rows of one part that were read at once."""

    offset: int
    size_bytes: int
    schema: pa.Schema


class DealtTable:
    """The parts of one table. For one thread."""

    def __init__(self, entry: CatalogEntry, dealing: Dealing, bytes_max: int) -> None:
        """`bytes_max`: above it a part is refused; and what all parts in memory have at most."""
        self.name = entry.name
        self._entry, self._dealing, self._bytes_max = entry, dealing, bytes_max
        self._pieces: list[list[_Piece]] = [[] for _ in range(dealing.parts)]
        self._sizes_bytes = [0] * dealing.parts
        self._empty = no_rows(entry)
        self._rows = 0
        self._held: dict[int, Table] = {}
        """What is in memory. Last used last."""
        with self._naming():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the table
        weakref.finalize(self, self._file.close)

    @property
    def size(self) -> str:
        """How large it is, for people."""
        size_bytes = sum(self._sizes_bytes)
        return f"{self._rows} rows in {len(self._pieces)} parts, {size_bytes} bytes on disk"

    def require_like(self, before: DealtTable) -> None:
        """Raises UserError: as `require_alike`."""
        if self._rows and before._rows:
            require_alike(self._empty.record_batch.schema, before._empty.record_batch.schema)

    def deal(self, reads: Iterator[Columns]) -> None:
        """Take all rows.

        Raises:
            UserError: a row has no key that can be looked up, or a part is too large.
            Unavailable: they cannot be read or written now.
        """
        for rows in _gathered(reads):
            # Whatever is wrong with a row is said now, and not when somebody has looked it up.
            self._table(rows)
            parts = self._dealing.parts_of(rows)
            for number in np.unique(parts).tolist():
                self._write(number, rows.take(np.flatnonzero(parts == number)).record_batch)
            none = rows.slice(0, 0)
            self._empty = join([self._empty, none]) if self._rows else none
            self._rows += len(rows)
        with self._naming():
            self._file.flush()

    def part(self, number: int) -> Table:
        """One part.

        Raises:
            UserError: its rows do not fit together.
        """
        table = self._held.pop(number, None)
        if table is None:
            self._make_room(self._sizes_bytes[number])
            # Without rows it has the columns that the others have.
            table = self._table(join([self._empty, *map(self._read, self._pieces[number])]))
        self._held[number] = table
        return table

    def _make_room(self, size_bytes: int) -> None:
        held_bytes = sum(self._sizes_bytes[each] for each in self._held)
        while self._held and held_bytes + size_bytes > self._bytes_max:
            first = next(iter(self._held))
            held_bytes -= self._sizes_bytes[first]
            del self._held[first]

    def _table(self, rows: Columns) -> Table:
        return Table(self.name, rows, names_of(self._entry.key), self._entry.version_key)

    def _write(self, number: int, batch: pa.RecordBatch) -> None:
        data, offset = batch.serialize(), sum(self._sizes_bytes)
        self._pieces[number].append(_Piece(offset, len(data), batch.schema))
        self._sizes_bytes[number] += len(data)
        if self._sizes_bytes[number] > self._bytes_max:
            what = f"part {number} of {len(self._pieces)} of table {self.name}"
            raise too_large(what, self._bytes_max, "a process of Spark")
        with self._naming():
            self._file.write(data)

    def _read(self, piece: _Piece) -> Columns:
        data = os.pread(self._file.fileno(), piece.size_bytes, piece.offset)
        assert len(data) == piece.size_bytes, "written before"
        return Columns(pa.ipc.read_record_batch(pa.py_buffer(data), piece.schema))

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"parts of table {self.name} cannot be written to a file in TMPDIR"
            raise Unavailable(f"{what}: {describe(error)}") from error


def deal_table(entry: CatalogEntry, plugin: Input, bytes_max: int, dealing: Dealing) -> DealtTable:
    """The table, as it is now in its source. Raises as `load_table`."""
    try:
        dealt = DealtTable(entry, dealing, bytes_max)
        dealt.deal(reads_of(entry, plugin, lambda: True))
    finally:
        plugin.close()
    return dealt


def _gathered(reads: Iterator[Columns]) -> Iterator[Columns]:
    """Many rows at once: each part gets a piece of them, and pieces should not be small."""
    some: list[Columns] = []
    for rows in reads:
        some.append(rows)
        if sum(map(len, some)) >= ROWS_A_READ:
            yield join(some)
            some = []
    if some:
        yield join(some)
