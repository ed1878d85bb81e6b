"""Event time at a bucket behind a shuffle, by what has come from each origin.

An origin is a partition of an input, or a bucket of a task behind a shuffle: whatever begins a tree
of tasks and keeps the order of what it sends.

In a micro-batch a bucket begins with what it knew behind the last one (`Before`).

All rows of a micro-batch have to be made from the same readings of its inputs (`Report`). Spark
may run a task again in the middle of a batch, when an executor is lost with the rows that it
had made. An input that is read again may give more than before, and buckets that were done by then
have had the first reading. What is then committed would lack rows, or have some twice. So each
origin draws a number whenever it runs. Its ending brings it to every bucket, each bucket reports
what it has heard, and a batch of which two buckets have heard different numbers is not committed.

What one task of Spark reports goes to one bucket behind the next shuffle, so it is of one run.
Rejected: to keep what was read until the batch is committed, which is a copy of all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.model.workflow import sources_above
from onyx.spark.compiler.compile import above, all_above, below
from onyx.spark.driver.request import BucketState
from onyx.spark_query.folding.inbox import AWAY
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import Row
from onyx.state.buckets import bucket_of
from onyx.windows.units import standard
from onyx.windows.watermarks import IDLE, SILENT, TIME_MS_MIN, ChannelMarks, Mark, Rising


class Arrivals:
    """The watermark of one bucket: the least of its origins', as on a peer that of its channels."""

    def __init__(self, origins: Iterable[str], before: Before | None = None) -> None:
        """
        Args:
            origins: all that may send here; as long as one has said nothing, nothing is known.
            before: what was known of them when the micro-batch began.
        """
        before, self._origins = before or Before(), frozenset(origins)
        self._marks = ChannelMarks(self._origins)
        for origin, said in before.marks.items():
            if said is not SILENT:
                self._marks.hear(origin, said)
        self._open = set(self._origins) - before.ended
        self.newest_ms = before.newest_ms
        """The greatest event time that is known to have come."""
        self._own = Rising()
        self._own.time_ms = before.mark

    @property
    def mark(self) -> int | None:
        """Event time has come to this, in milliseconds."""
        return self._own.time_ms

    @property
    def idle(self) -> bool:
        """Whether nothing holds the watermark back."""
        return self._marks.mark is IDLE

    @property
    def open(self) -> frozenset[str]:
        """Origins from which more may come."""
        return frozenset(self._open)

    @property
    def over(self) -> bool:
        """Whether nothing more comes, from any origin."""
        return not self._open

    def close(self) -> None:
        """Nothing more comes, whatever has been said."""
        self._open.clear()

    def said(self, origin: str) -> Mark:
        """What an origin has said last."""
        return self._marks.said(origin)

    def hear(self, row: Row) -> bool:
        """The row has been worked on; True when event time has risen."""
        if row.origin not in self._origins:
            return False
        if row.kind in ("end", "idle"):
            self._marks.hear(row.origin, IDLE)
        elif row.mark is not None:
            self._marks.hear(row.origin, row.mark)
        if row.kind == "end":
            self._open.discard(row.origin)
            self._newest(row.mark)
        before = self._own.time_ms
        self._own.follow(self._marks.mark)
        return self._own.time_ms != before

    def _newest(self, time_ms: int | None) -> None:
        known_ms = self.newest_ms
        if time_ms is not None and (known_ms is None or time_ms > known_ms):
            self.newest_ms = time_ms


class Before(msgspec.Struct, frozen=True):
    """What a bucket knows when a micro-batch begins."""

    marks: Mapping[str, Mark] = msgspec.field(default_factory=dict)
    """By origin; of those that have said something."""
    ended: frozenset[str] = frozenset()
    """Origins from which nothing more comes."""
    mark: int | None = None
    """The watermark of the bucket."""
    newest_ms: int | None = None
    """The greatest event time that inputs above have had."""


def before(query: Query, reached: Reached, state: BucketState, held: Mapping[str, Mark]) -> Before:
    """What a bucket knew behind the last micro-batch.

    Args:
        held: what origins had said before what is left of them. They have said more since, and may
            have ended, which is heard behind that.
    """
    marks, ended = dict[str, Mark](), set[str]()
    for number, each in enumerate(reached.positions):
        origin, entry = f"{each.task}:{number}", query.job.entry(each.task)
        if each.exhausted:
            ended.add(origin)
        if each.exhausted or each.idle:
            marks[origin] = IDLE
        elif each.newest_ms is not None:
            marks[origin] = max(TIME_MS_MIN, each.newest_ms - standard(entry.allowed_disorder))
    for its in reached.states:
        origin = f"{its.task}:{its.bucket}"
        if its.over:
            ended.add(origin)
        if its.over or its.idle:
            marks[origin] = IDLE
        elif its.passed_on is not None:
            marks[origin] = its.passed_on
    marks |= held
    ended -= held.keys()
    mine, inputs = set(origins(query, state.task)), all_above(query.job, state.task)
    times = [each.newest_ms for each in reached.positions if each.task in inputs]
    newest_ms = max((each for each in times if each is not None), default=None)
    known = {origin: said for origin, said in marks.items() if origin in mine}
    return Before(known, frozenset(ended & mine), state.mark, newest_ms)


def ended(query: Query, task: str, going: Iterable[str]) -> frozenset[str]:
    """The tasks above one that begin trees and have ended.

    Args:
        going: origins that have not.
    """
    found = set(sources_above(query.job, task))
    for its in {origin.removeprefix(AWAY).partition(":")[0] for origin in going}:
        found -= {its, *sources_above(query.job, its)}
    return frozenset(found)


def downstream(query: Query, task: str) -> frozenset[str]:
    """Tasks behind a shuffle to which a task may send, itself or through others."""
    return _reached(query, task, below(query.job))


def origins(query: Query, task: str) -> list[str]:
    """All origins that may send to a task behind a shuffle."""
    edges, found = above(query.job), list[str]()
    begins = {each for fragment in query.plan.fragments for each in fragment.begins}
    waiting, seen = list(edges[task]), set[str]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in begins:
            found += _of(query, each)
        else:
            waiting += edges[each]
    return found


def _reached(query: Query, task: str, edges: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found, waiting = set[str](), list(edges[task])
    while waiting:
        each = waiting.pop()
        if query.plan.exchange(each) is not None:
            found.add(each)
        else:
            waiting += edges[each]
    return frozenset(found)


def _of(query: Query, task: str) -> list[str]:
    exchange, buckets = query.plan.exchange(task), query.config.buckets
    if query.plan.middle(task) is not None:
        return [task]  # which never says anything: its rows may have any times
    if exchange is None:
        numbers = [n for n, (its, _) in enumerate(query.config.partitions) if its == task]
    elif exchange.key is None:
        numbers = [bucket_of(task, buckets)]
    else:
        numbers = list(range(buckets))
    return [f"{task}:{number}" for number in numbers]


BITS = 62
BYTES = 8


class ReadAgain(Unavailable):
    """Spark has read inputs again in the middle of a micro-batch."""


@prepared
class Report(msgspec.Struct, frozen=True):
    """What a bucket reports behind a micro-batch."""

    state: BucketState
    heard: int
    """The readings of all endings, each exclusive-or the rest: the same in any order."""


def new_reading() -> int:
    """A number that no other run has."""
    return secrets.randbits(BITS)


def of_ending(reading: int) -> bytes:
    """The payload of an ending."""
    return reading.to_bytes(BYTES, "big")


def heard(before: int, ending: Row) -> int:
    """What a bucket has heard, with one more ending."""
    return before ^ int.from_bytes(ending.payload, "big")


def states_of_buckets(query: Query, rows: Sequence[Row], number: int) -> list[BucketState]:
    """What the buckets report of a micro-batch.

    Args:
        rows: what all fragments report.

    Raises:
        ReadAgain: the batch is not of one reading of its inputs.
    """
    readings = {row.origin: row.mark for row in rows if row.kind in ("position", "held")}
    found: list[BucketState] = []
    for row in rows:
        if row.kind != "held":
            continue
        report = msgspec.json.decode(row.payload, type=Report)
        expected = 0
        for origin in origins(query, row.task):
            expected ^= readings.get(origin) or 0
        if report.heard != expected:
            raise ReadAgain(
                f"Spark has read inputs again in the middle of micro-batch {number}, as when an "
                f"executor is lost: task {row.task} has rows of both readings; the batch is "
                "repeated"
            )
        found.append(report.state)
    return found
