"""The parts of an output of another job, in the order in which they were found, for one partition.

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
from typing import Any

import msgspec

from onyx.base.structs import prepared
from onyx.errors import OnyxError, StateError, Unavailable, UserError
from onyx.flow.batch import U64
from onyx.journal.logs import Content, RememberedRequest
from onyx.plugins.job.options import JobOptions
from onyx.plugins.parts import offsets
from onyx.plugins.parts.listing import NotThere, part_of, parts_in
from onyx.plugins.parts.names import whose
from onyx.plugins.parts.offsets import Limit, Mark, Part
from onyx.plugins.protocol import JobOutput, PluginContext, Unanswered
from onyx.plugins.starting import read_start
from onyx.storage.opening import is_remote
from onyx.telemetry.interface import TaskMetrics

PARTS_MAX = 1_000
"""Parts of one chunk."""
PATH = "path"
"""Key of a segment of the journal: where the part is."""


@prepared
class Known(msgspec.Struct, frozen=True):
    """How far the output is known: the cursor of the journal."""

    paths: dict[str, str] = msgspec.field(default_factory=dict)
    """Where each version of the job writes, by its id."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """By writer, of the parts of this partition."""
    ended: bool = False


class PartsFeed(Unanswered):
    """Implements `journalled.feed.Feed`."""

    judges = False

    def __init__(
        self, context: PluginContext, options: JobOptions, partition: int, cursor: Any
    ) -> None:
        """`cursor` is that of the journal."""
        self._context = context
        self._options = options
        self._partition = partition
        self._known = Known() if cursor is None else msgspec.convert(cursor, Known)
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

    def judged(self, wait_s: float) -> None:
        """Nobody is answered."""

    def appended(self, content: Content) -> None:
        """The parts have their places."""
        self._known = msgspec.convert(content.cursor, Known)
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
            return Content([], cursor=msgspec.to_builtins(Known(paths, dict(marks))))
        parts = [each for each in parts if self._is_mine(each)]
        new = offsets.unread(known.marks, parts)[:PARTS_MAX]
        ends = not new and output.state == "completed"
        self.obstacle = "" if new else self._options.no_more(self._context, output.state)
        if not new and not ends:
            return None
        marks = offsets.advanced(known.marks, parts, Limit(parts=PARTS_MAX), offsets.not_asked)
        cursor = msgspec.to_builtins(Known(paths, dict(marks), ends))
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
