"""Input `job`: the rows of an output of another job, part by part as they are published; or what
one of its inputs takes, from the journal of that (`follower`).

The source of rows is live: parts come while the other job runs, and nobody knows in which order. So
the list of parts goes through a journal (`plugins/journalled`), which gives each its place for
good, and whoever owns a partition reads the parts in this order. The rows stay in the parts; they
are read as the input `files` reads them. Positions count rows. A cursor holds the number of a part
in the journal, the position of its first row, and how the part is read from there on. Parts never
change, so the same cursor gives the same rows.

Parts are dealt to partitions by their names. What a listing has that was not there before goes into
the journal of the partition, one segment a part, and from then on has its place: a part that is
published late, under a smaller name, comes behind. How far the listing is known (`parts.offsets`: a
mark for each writer) lies in the same chunk, so each part is taken once, whoever looks next.

The end is a chunk too: the other job has completed, and the listing after that has nothing new. It
stays the end when the other job is forgotten.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.errors import OnyxError, StateError, Unavailable, UserError
from onyx.flow.batch import U64
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, RememberedRequest
from onyx.plugins.bases import partition_names
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.job.follower import (
    JournalFollower,
    first_position,
    follows_journal,
    segments_behind,
)
from onyx.plugins.job.options import REFUSED_OF_OUTPUTS, JobOptions
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.journalled.reader import JournalReader, OwnerReader
from onyx.plugins.options import option_error
from onyx.plugins.parts import offsets
from onyx.plugins.parts.folders import NotThere, part_of, parts_in, whose
from onyx.plugins.parts.offsets import Limit, Mark, Part
from onyx.plugins.protocol import (
    START,
    Behind,
    ColumnsReader,
    Cursor,
    Input,
    JobJournal,
    JobOutput,
    PluginContext,
    Reader,
    Unanswered,
)
from onyx.plugins.starting import check_partitions, read_start, wrong_start
from onyx.storage.opening import is_remote
from onyx.telemetry.interface import TaskMetrics

if TYPE_CHECKING:
    from onyx.flow.segment import Segment

JOURNAL_BYTES_MAX = 1_073_741_824
"""Names of parts that are not read yet."""
BEGUN_MAX = 10_000
"""Parts whose beginnings are remembered; of more, whole runs of parts are read again."""
T = TypeVar("T")
OpenPart = Callable[[str, Cursor], Reader]
PARTS_MAX = 1_000
"""Parts of one chunk."""
PATH = "path"
"""Key of a segment of the journal: where the part is."""


class JobInput(Input):
    """Implements `protocol.StartingInput` and `OwningInput`."""

    cooperative = False
    examined = True

    def __init__(self, context: PluginContext, options: JobOptions) -> None:
        self._context = context
        self._options = options
        self._feeds: dict[str, PartsFeed] = {}
        self._files = FilesInput(context, FilesInputOptions(path=[], hive_partitioning=False))
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

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """Positions of the journal that is followed. Of parts nobody knows how many rows they
        have."""
        followed = {name: at for name, at in cursors.items() if follows_journal(at)}
        return segments_behind(self._context, self._options, followed)

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


@prepared
class At(msgspec.Struct, frozen=True):
    """The state of a cursor, beside that of the journal."""

    part: int = 0
    """Number of the part in the journal."""
    first: int = 0
    """Position of its first row."""
    row: int = 0
    """The row of the part from which it is read."""
    state: Any = None
    """What the reader of the part wants to know to begin there."""


class PartsReader(ColumnsReader):
    """The rows of a partition."""

    def __init__(
        self,
        parts: JournalReader,
        cursor: Cursor,
        open_part: OpenPart,
        feed: PartsFeed | None,
    ) -> None:
        """
        Args:
            parts: at the part of the cursor.
            feed: of the partition; None beside a reader that has it.
        """
        self._parts = parts
        self._open_part = open_part
        self._feed = feed
        at = at_of(cursor)
        self._from = Cursor(at.row, at.state)
        self._begun: deque[tuple[int, int]] = deque([(at.part, at.first)])
        """Number and first position of each part whose rows may be asked for."""
        self._named: str | None = None
        """The part that comes next, taken from the journal and not open yet."""
        self._reader: Reader | None = None
        self._position = at.first + at.row
        self._complete = self._position
        """The greatest position of which a cursor was asked."""

    def read(self, segments_max: int) -> list[Segment]:
        """Rows of the part that is open, or the next one."""
        return self._read(lambda reader: reader.read(segments_max), [])

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """Rows like those of `read`, as columns."""
        nothing: pa.RecordBatch | list[Segment] = []
        return self._read(
            lambda reader: reader.read_columns(segments_max),  # type: ignore[attr-defined]
            nothing,
        )

    def exhausted(self) -> bool:
        """Whether the other job has completed, and all of its parts are read."""
        ended = self._feed is not None and self._feed.ended()
        left = self._reader is not None or self._named is not None
        return ended and not left and not self._parts.ready()

    def cursor(self, position: int) -> Cursor:
        """In the part that is open, or at the beginning of the one that has the position."""
        self._complete = position
        while len(self._begun) > 1 and self._begun[1][1] <= position:
            self._begun.popleft()
        part, first = self._begun[0]
        at = At(part, first)
        if len(self._begun) == 1:  # the part that is open, or comes next
            inner = self._from if self._reader is None else self._reader.cursor(position - first)
            at = At(part, first, inner.position, inner.state)
        state = self._parts.cursor(part).state
        return Cursor(first + at.row, {**state, **msgspec.to_builtins(at)})

    def close(self) -> None:
        """Close the part that is open."""
        if self._reader is not None:
            self._reader.close()
        self._parts.close()

    def _read(self, read: Callable[[Reader], T], nothing: T) -> T:
        while self._reader is not None or self._open_next():
            assert self._reader is not None, "open_next has opened it"
            found = read(self._reader)
            if len(found):  # type: ignore[arg-type]
                self._position += len(found)  # type: ignore[arg-type]
                return found
            if not self._reader.exhausted():
                return nothing
            self._reader.close()
            self._reader = None
            self._begin(self._begun[-1][0] + 1)
        # What is in flight ends first: a task that cannot read does nothing else either.
        if self._feed is not None and self._feed.obstacle and self._complete >= self._position:
            raise Unavailable(self._feed.obstacle)
        return nothing

    def _open_next(self) -> bool:
        if self._named is None:
            named = self._parts.read(1)
            if not named:
                return False
            self._named = str(named[0][PATH])
        # A part that cannot be opened now is the next one still.
        self._reader = self._open_part(self._named, self._from)
        self._named, self._from = None, START
        return True

    def _begin(self, part: int) -> None:
        """The next part begins where the last one has ended."""
        if self._begun[-1][1] == self._position:
            self._begun.pop()  # a part without rows
        elif len(self._begun) >= BEGUN_MAX:
            self._begun.pop()
        self._begun.append((part, self._position))


def at_of(cursor: Cursor) -> At:
    """The part of a cursor's state that is the reader's."""
    return msgspec.convert(cursor.state or {}, At)


@prepared
class PartsCursor(msgspec.Struct, frozen=True):
    """How far the output is known: the cursor of the journal."""

    paths: dict[str, str] = msgspec.field(default_factory=dict)
    """Where each version of the job writes, by its id."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """By writer, of the parts of this partition."""
    ended: bool = False


class PartsFeed(Unanswered):
    """Implements `journalled.partition.Feed`."""

    judges = False

    def __init__(
        self, context: PluginContext, options: JobOptions, partition: int, cursor: Any
    ) -> None:
        """`cursor` is that of the journal."""
        self._context = context
        self._options = options
        self._partition = partition
        self._known = PartsCursor() if cursor is None else msgspec.convert(cursor, PartsCursor)
        self._next_s = context.clock.monotonic_s()
        self._closed = threading.Event()
        self._ended = self._known.ended
        """Whether everything is in the journal."""
        self.obstacle = ""
        """Why nothing more comes for now."""

    def take(self, first: int, wait_s: float) -> Content | None:
        """The parts that are new, or the end."""
        now_s = self._context.clock.monotonic_s()
        if self._ended or now_s < self._next_s:
            self._closed.wait(wait_s if self._ended else min(wait_s, self._next_s - now_s))
            return None
        self._next_s = now_s + self._options.poll_seconds
        options, known = self._options, self._known
        try:
            output = self._context.output_of(options.job, options.task, sorted(known.paths))
            parts = self._parts(self._checked({**known.paths, **output.paths}), output)
        except Unavailable as error:
            self.obstacle = f"{self._context.where}: {error}"
            return None
        return self._content(output, parts)

    @property
    def unread(self) -> None:
        """Nobody knows how many parts there are before they are listed."""

    def judged(self, wait_s: float) -> None:
        """Nobody is answered."""

    def appended(self, content: Content) -> None:
        """The parts have their places."""
        self._known = msgspec.convert(content.cursor, PartsCursor)
        if content.count == PARTS_MAX:
            self._next_s = self._context.clock.monotonic_s()
        if self._known.ended:
            self._ended = True
            self._context.wake()  # nothing that could be read does it

    def hold(self, reason: str) -> None:
        """Parts wait where they are."""

    def acked(self, positions: U64) -> None:
        """Nobody waits for a part."""

    def passed(self, position: int) -> None:
        """Parts stay where they are."""

    def remembered(self) -> list[RememberedRequest]:
        """No requests."""
        return []

    def ended(self) -> bool:
        """Whether everything is in the journal. Asked by the task."""
        return self._ended

    def report(self, metrics: TaskMetrics) -> None:
        """Parts are counted as segments."""

    def release(self) -> None:
        """Nothing is open."""

    def refuse(self) -> None:
        """Take nothing any more."""
        self.close(None)

    def close(self, error: OnyxError | None) -> None:
        """Look no further."""
        self._closed.set()

    def _content(self, output: JobOutput, parts: list[Part]) -> Content | None:
        known = self._known
        paths = {**known.paths, **output.paths}
        if not known.paths and read_start(self._options.start_from).form == "end":
            marks = offsets.end(known.marks, parts)
            return Content([], cursor=msgspec.to_builtins(PartsCursor(paths, dict(marks))))
        parts = [each for each in parts if self._is_mine(each)]
        new = offsets.unread(known.marks, parts)[:PARTS_MAX]
        ends = not new and output.state == "completed"
        self.obstacle = "" if new else self._options.no_more(self._context, output.state)
        if not new and not ends:
            return None
        marks = offsets.advanced(known.marks, parts, Limit(parts=PARTS_MAX), offsets.not_asked)
        cursor = msgspec.to_builtins(PartsCursor(paths, dict(marks), ends))
        return Content([[{PATH: part.path} for part in new]] if new else [], cursor=cursor)

    def _checked(self, paths: dict[str, str]) -> dict[str, str]:
        self._options.check_another(self._context, paths)
        if not paths:
            raise UserError(
                f"{self._context.where}: job {self._options.job} has ended and is forgotten "
                "(`onyx gc`), so nobody knows where it has written: read its parts with an input "
                "`files`"
            )
        return paths

    def _parts(self, paths: dict[str, str], output: JobOutput) -> list[Part]:
        """The parts of all partitions, up to the newest one of each writer that is certain: a
        listing may have a part, and miss one before it that was published meanwhile."""
        before = self._listed(paths, output)
        found = offsets.settled(before, self._listed(paths, output))
        self._check_gaps(found, paths, output)
        return found

    def _check_gaps(self, found: list[Part], paths: dict[str, str], output: JobOutput) -> None:
        """That nothing was removed which this partition has not read. Each partition looks for its
        own parts."""
        if not self._known.paths and read_start(self._options.start_from).form == "end":
            return
        named = [(paths[job], names) for job, names in output.last.items() if job in paths]
        last = [part_of(folder, name) for folder, names in named for name in names]
        for part in offsets.gaps(self._known.marks, found, last):
            if self._is_mine(part):
                raise StateError(
                    f"{self._context.where}: part {part.path} of job {self._options.job} is gone, "
                    "which was published and not read yet. Parts must stay until they are read: "
                    "put it back, or follow the output with `startFrom: end`"
                )

    def _listed(self, paths: dict[str, str], output: JobOutput) -> list[Part]:
        wanted = {whose(self._options.task, job) for job in paths}
        name = f"job {self._options.job}, task {self._options.task}"
        found: list[Part] = []
        for folder in sorted(set(paths.values())):
            try:
                found += parts_in(folder, wanted.__contains__, name)
            except NotThere:
                # An output makes its folder when it starts; a bucket has none without objects.
                if output.state == "completed" and not is_remote(folder):
                    raise
        return found

    def _is_mine(self, part: Part) -> bool:
        return partition_of(part.path, self._options.partitions or 1) == self._partition


def partition_of(path: str, partitions: int) -> int:
    """Where a part goes, by its name alone: a folder may be seen under several."""
    return zlib.crc32(path.rpartition("/")[2].encode()) % partitions
