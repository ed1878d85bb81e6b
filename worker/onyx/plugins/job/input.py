"""Input `job`: the rows of an output of another job, part by part as they are published; or what
one of its inputs takes, from the journal of that (`follower`).

The source of rows is live: parts come while the other job runs, and nobody knows in which order. So
the list of parts goes through a journal (`plugins/journalled`), which gives each its place for
good, and whoever owns a partition reads the parts in this order. The rows stay in the parts; they
are read as the input `files` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.journal.journal import Journal
from onyx.plugins.bases import partition_names
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.job.feed import PartsFeed
from onyx.plugins.job.follower import JournalFollower, first_position, follows_journal
from onyx.plugins.job.options import REFUSED_OF_OUTPUTS, JobOptions
from onyx.plugins.job.reader import PartsReader, at_of
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import OwnerReader
from onyx.plugins.options import option_error
from onyx.plugins.protocol import START, Cursor, Input, JobJournal, PluginContext, Reader
from onyx.plugins.starting import check_partitions, read_start, wrong_start

JOURNAL_BYTES_MAX = 1_073_741_824
"""Names of parts that are not read yet."""


class JobInput(Input):
    """Implements `protocol.StartingInput` and `owning.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(self, context: PluginContext, options: JobOptions) -> None:
        self._context = context
        self._options = options
        self._feeds: dict[str, PartsFeed] = {}
        self._files = FilesInput(context, InputOptions(path=[], hive_partitioning=False))
        # Cursors count rows, and the journal parts.
        counted = replace(context, batch_format="dicts", schema=None, cursors=self._cursors)
        self._partitions = JournalledPartitions(
            counted, options.partitions or 1, JOURNAL_BYTES_MAX, self._open_feed
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        context, options = self._context, self._options
        journal = self._journal()
        if journal is None:
            for each in wrong_start(options.start_from, REFUSED_OF_OUTPUTS):
                raise option_error(context, each.path, f"{each.message}; {each.hint}")
            return self._partitions.names
        count = journal.partitions or 1
        if options.partitions not in (None, count):
            what = f"is {options.partitions}, and the journal has {count}: leave it out"
            raise option_error(context, "partitions", what)
        names = partition_names(count)
        check_partitions(context, read_start(options.start_from), names)
        return names

    def start(self, partition: str) -> Cursor:
        """Where the journal is read first. Parts are read in the order in which they are listed,
        and the list begins where `startFrom` says."""
        journal = self._journal()
        if journal is None:
            return START
        return first_position(self._context, self._options, partition, journal)

    def open(self, partition: str, cursor: Cursor) -> PartsReader | JournalFollower:
        """Takes the list of parts over; beside an open reader, reads what is in it."""
        if follows_journal(cursor):
            return JournalFollower(self._context, self._options, partition, cursor)
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

    def _journal(self) -> JobJournal | None:
        context, options = self._context, self._options
        journal = context.journal_of(options.job, options.task, ())
        if journal is not None:
            options.check_another(context, journal.jobs)
        return journal

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
