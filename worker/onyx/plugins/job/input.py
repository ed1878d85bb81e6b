"""Input `job`: the rows of an output of another job, part by part as they are published.

The source is live: parts come while the other job runs, and nobody knows in which order. So the
list of parts goes through a journal (`plugins/journalled`), which gives each its place for good,
and whoever owns a partition reads the parts in this order. The rows stay in the parts; they are
read as the input `files` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.journal.journal import Journal
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.job.feed import PartsFeed
from onyx.plugins.job.options import JobOptions
from onyx.plugins.job.reader import PartsReader, at_of
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import OwnerReader
from onyx.plugins.protocol import Cursor, PluginContext, Reader

JOURNAL_BYTES_MAX = 1_073_741_824
"""Names of parts that are not read yet."""


class JobInput:
    """Implements `protocol.Input` and `owning.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(self, context: PluginContext, options: JobOptions) -> None:
        self._context = context
        self._options = options
        self._feeds: dict[str, PartsFeed] = {}
        self._files = FilesInput(context, InputOptions(path=[]))
        # Cursors count rows, and the journal parts.
        counted = replace(context, batch_format="dicts", schema=None, cursors=self._cursors)
        self._partitions = JournalledPartitions(
            counted, options.partitions, JOURNAL_BYTES_MAX, self._open_feed
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def open(self, partition: str, cursor: Cursor) -> PartsReader:
        """Takes the list of parts over; beside an open reader, reads what is in it."""
        parts = self._partitions.open(partition, _of_parts(cursor))
        feed = self._feeds[partition] if isinstance(parts, OwnerReader) else None
        return PartsReader(parts, cursor, self._open_part, feed)

    def column_types(self) -> Mapping[str, pa.DataType]:
        """The column types of JSON lines, as they were learned."""
        return self._files.column_types()

    def close(self) -> None:
        """Look for no more parts."""
        self._partitions.close()
        self._files.close()

    def _open_part(self, path: str, cursor: Cursor) -> Reader:
        try:
            return self._files.open(path, cursor)
        except UserError as error:
            raise UserError(
                f"{self._context.where}: part {path} of job {self._options.job} cannot be read: "
                f"{error}. Parts must stay until they are read, where all workers see them"
            ) from error

    def _open_feed(self, partition: str, journal: Journal) -> PartsFeed:
        number = self._partitions.names.index(partition)
        feed = PartsFeed(self._context, self._options, number, journal.cursor)
        self._feeds[partition] = feed
        return feed

    def _cursors(self) -> Sequence[Cursor]:
        return [_of_parts(each) for each in self._context.cursors()]


def _of_parts(cursor: Cursor) -> Cursor:
    """A cursor of rows as one of parts."""
    return Cursor(at_of(cursor).part, cursor.state)
