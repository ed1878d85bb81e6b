"""The inbox of a task in one bucket: an operator may leave segments in it, and gets them again.

It gets them when it has taken or made something else, when event time or an end has come, at the
beginning and the end of a micro-batch, and with more of the same edge. Nobody who sends can be held
back behind a shuffle, so what waits is bounded, and the job fails beyond that. When nothing more
comes, all has to be taken. An operator that waits for time to pass gets its time; one that waits
for ever is found.

Rows of an edge (a task upstream) come to the operator in order, and so do those of an origin: event
time of an origin goes on when all before it was taken, as on a peer. So a row waits behind others
of its edge for its segments to be taken, and behind others of its origin for its watermark to be
heard.

What waits outlives a micro-batch: it is recorded in the chunks of the bucket, row by row, so that
what waits for long is not written with each. Rejected: not to commit how far inputs were read
before all is taken, since other tasks behind the same input have taken it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import msgspec

from onyx.base.seams import Clock
from onyx.errors import UserError
from onyx.flow.batch import Indices, Segments, joined, take
from onyx.ids import TaskName
from onyx.keystate.records import LEFT, DeleteGroups, Record, SetStates
from onyx.program.operator import Operator
from onyx.spark_query.rows import Row, payload_of, segments_of
from onyx.windows.watermarks import IDLE, SILENT, Mark

LEFT_BYTES_MAX = 268_435_456
"""What waits in one bucket is smaller, as rows."""
GIVEN_MAX = 8_192
"""An operator gets about so many segments at once of an edge that waits, as on a peer."""
RESTS = 9
"""An edge rests for so many times as long as it took to find that nothing of it is taken."""
TRIED_EVERY_S = 0.1
"""When nothing more comes, what waits is given again as often."""
TRIED_EVERY_MS = 5_000
"""So long after a micro-batch in which something has waited another one begins, though nothing has
come."""
WAITS_S = 600.0
"""When nothing more comes, an operator that takes nothing for so long waits for ever."""
AWAY = "@"
"""Before the name of a partition, in the place of its number: of one that is recorded, or that is
not there now."""
_EXTENT = 0
_IDLE = "idle"


class Keeping(Protocol):
    """The state of the bucket (`spark_query.shares.Fold`)."""

    operator: Operator
    clock: Clock

    def add(self, segments: Segments, upstream: str) -> Indices:
        """Give segments to the operator; the indices of those that it leaves."""
        ...

    def tick(self) -> None:
        """Let it do what is due."""
        ...


class Inbox:
    """What has come to a bucket, until its operator takes it."""

    def __init__(
        self,
        fold: Keeping,
        left: LeftRows,
        said: Callable[[str], Mark],
        hear: Callable[[Row], None],
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """
        Args:
            left: what waits already.
            said: gives the watermark of an origin.
            hear: takes a row before which all was taken: event time, and ends.
        """
        self._fold = fold
        self._left = left
        self._said = said
        self._hear = hear
        self._sleep = sleep
        self._done = 0
        """Segments that were taken, and rows that were heard."""
        self._tried: dict[str, tuple[int, float]] = {}
        """By edge of which nothing was taken: how much had been done then, and until when it
        rests."""

    def take(self, row: Row, segments: Segments) -> None:
        """A row has come. Raises UserError: too much waits."""
        added = self._left.add(row, segments, self._said(row.origin))
        if len(segments) and not self._rests(row.upstream):
            self._give(row.upstream)
        self._hear_from(row.origin)
        self._settle(lambda edge: self._left.edges[edge] and self._may_be_due(edge))
        added.forget()
        if self._left.size_bytes > LEFT_BYTES_MAX:
            raise UserError(
                f"{self._why()}; on Spark at most {LEFT_BYTES_MAX >> 20} MiB wait in each share of "
                "the groups, because those who send cannot be held back: take what comes and keep "
                "it in the state, or run the job on peers"
            )

    def settle(self) -> None:
        """Between two micro-batches: the operator gets what waits."""
        self._tried.clear()
        self._settle(lambda edge: bool(self._left.edges[edge]))

    def due_ms(self, due_ms: int | None) -> int | None:
        """When the next micro-batch begins although nothing has come; `due_ms`: when it does in any
        case."""
        if not self._left.origins:
            return due_ms
        tried_ms = self._fold.clock.wall_ms() + TRIED_EVERY_MS
        return tried_ms if due_ms is None else min(due_ms, tried_ms)

    def finish(self, note_ends: Callable[[], None]) -> None:
        """Nothing more comes: all is taken. Raises UserError: it is not.

        Args:
            note_ends: notes what has ended as far as nothing of it is left.
        """
        clock, done, until_s = self._fold.clock, -1, 0.0
        while True:
            note_ends()
            self._fold.tick()
            self.settle()
            if not self._left.origins:
                return
            if self._done != done:
                done, until_s = self._done, clock.monotonic_s() + WAITS_S
            elif clock.monotonic_s() >= until_s:
                raise UserError(self._why())
            else:
                self._sleep(TRIED_EVERY_S)

    def _settle(self, fits: Callable[[str], object]) -> None:
        """Give what waits of edges, as long as something of it is taken."""
        done = -1
        while done != self._done:
            done = self._done
            for edge in [each for each in self._left.edges if fits(each)]:
                self._give(edge)
            for origin in list(self._left.origins):
                self._hear_from(origin)

    def _rests(self, edge: str) -> bool:
        tried = self._tried.get(edge)
        return tried is not None and self._fold.clock.monotonic_s() < tried[1]

    def _may_be_due(self, edge: str) -> bool:
        """Whether something was done since nothing of the edge was taken."""
        tried = self._tried.get(edge)
        return tried is None or (tried[0] != self._fold.operator.moves and not self._rests(edge))

    def _give(self, edge: str) -> None:
        """Give what waits of an edge, until the operator leaves some."""
        clock, operator = self._fold.clock, self._fold.operator
        while rows := self._left.first(edge, GIVEN_MAX):
            begun_s = clock.monotonic_s()
            rows, segments = _together(rows)
            left = self._fold.add(segments, edge)
            self._left.keep(edge, rows, left)
            self._done += len(segments) - len(left)
            if len(left) == len(segments):
                now_s = clock.monotonic_s()
                self._tried[edge] = operator.moves, now_s + RESTS * (now_s - begun_s)
                return
        self._tried.pop(edge, None)

    def _hear_from(self, origin: str) -> None:
        for row in self._left.take_heard(origin):
            self._done += 1
            self._hear(row)

    def _why(self) -> str:
        counts = {TaskName(edge): count for edge, count in self._left.counts.items()}
        return self._fold.operator.why_left(counts)


def _together(rows: list[WaitingRow]) -> tuple[list[WaitingRow], Segments]:
    """Rows and their segments; the first row alone, if columns of others do not go with it."""
    try:
        return rows, joined([each.segments for each in rows])
    except UserError:
        return rows[:1], rows[0].segments


class WaitingRow(msgspec.Struct):
    """A row that waits."""

    number: int
    """Rises in the order in which rows have come."""
    row: Row
    said: Mark
    """The watermark of its origin before it."""
    count: int
    """The segments of it that are left."""
    size_bytes: int
    """The size of the row, as it came."""
    _segments: Segments | None = None
    """These, if they have been needed."""
    _changed: bool = False
    """Whether some have been taken."""

    @property
    def segments(self) -> Segments:
        """The segments that are left."""
        if self._segments is None:
            self._segments = segments_of(self.row)
        return self._segments

    def keep(self, left: Indices) -> None:
        """Only these are left of its segments."""
        if len(left) < self.count:
            self._segments = take(self.segments, left)
            self.count, self._changed = len(left), True

    def forget(self) -> None:
        """The segments are not needed soon."""
        if not self._changed:
            self._segments = None

    def dump(self, origin: str) -> list[Any]:
        """The form in which a chunk has it, with this name of its origin."""
        if self._changed:
            kind, payload = payload_of(self.segments)
            kind = kind if self.row.kind in ("dicts", "columns") else self.row.kind
            self.row, self._changed = self.row._replace(kind=kind, payload=payload), False
        said = _IDLE if self.said is IDLE else self.said if isinstance(self.said, int) else None
        return [*self.row._replace(origin=origin), said, self.count]


class LeftRows:
    """All that waits in one bucket."""

    def __init__(self, partitions: Sequence[tuple[str, str]]) -> None:
        """`partitions`: of all inputs, each with its task: their origins have numbers, which may be
        others in another query."""
        self._names = {
            f"{task}:{n}": f"{AWAY}{task}:{name}" for n, (task, name) in enumerate(partitions)
        }
        self._numbers = {name: origin for origin, name in self._names.items()}
        self.edges: dict[str, deque[WaitingRow]] = {}
        """By the task upstream, rows with segments."""
        self.origins: dict[str, deque[WaitingRow]] = {}
        """By origin, all rows."""
        self.size_bytes = 0
        self._next = 0
        self._recorded: set[int] = set()
        self._changed: dict[int, WaitingRow] = {}
        self._gone: set[int] = set()

    def add(self, row: Row, segments: Segments, said: Mark) -> WaitingRow:
        """A row has come."""
        each = WaitingRow(self._next, row, said, len(segments), len(row.payload), segments)
        self._add(each)
        self._changed[each.number] = each
        return each

    def _add(self, each: WaitingRow) -> None:
        self._next = each.number + 1
        self.origins.setdefault(each.row.origin, deque()).append(each)
        if each.count:
            self.edges.setdefault(each.row.upstream, deque()).append(each)
            self.size_bytes += each.size_bytes

    def first(self, edge: str, segments_max: int) -> list[WaitingRow]:
        """The first rows of an edge that make one batch: about so many segments."""
        found: list[WaitingRow] = []
        for each in self.edges.get(edge, ()):
            if found and (segments_max <= 0 or each.row.kind != found[0].row.kind):
                break
            found.append(each)
            segments_max -= each.count
        return found

    def keep(self, edge: str, rows: Sequence[WaitingRow], left: Indices) -> None:
        """The operator has left these of the segments of the first rows of an edge."""
        queue, first = self.edges[edge], 0
        for each in rows:
            last = first + each.count
            mine = left[(left >= first) & (left < last)] - first
            first = last
            if len(mine) < each.count:
                each.keep(mine)
                self._changed[each.number] = each
            queue.popleft()
            if not each.count:
                self.size_bytes -= each.size_bytes
        queue.extendleft(each for each in reversed(rows) if each.count)

    def take_heard(self, origin: str) -> Iterator[Row]:
        """The rows of an origin before which all was taken."""
        while (rows := self.origins.get(origin)) and not rows[0].count:
            each = rows.popleft()
            if not rows:
                del self.origins[origin]
            self._changed.pop(each.number, None)
            if each.number in self._recorded:
                self._gone.add(each.number)
            yield each.row

    @property
    def said(self) -> Mapping[str, Mark]:
        """The watermarks that origins had before what waits of them."""
        return {origin: rows[0].said for origin, rows in self.origins.items()}

    @property
    def ended(self) -> frozenset[str]:
        """Origins whose end waits."""
        return frozenset(
            origin for origin, rows in self.origins.items() if rows[-1].row.kind == "end"
        )

    @property
    def counts(self) -> dict[str, int]:
        """The segments that are left, by the task upstream."""
        return {edge: sum(each.count for each in rows) for edge, rows in self.edges.items() if rows}

    # What is recorded and restored.

    def take_changes(self) -> list[Record]:
        """What has changed since the last call."""
        gone, changed = sorted(self._gone), list(self._changed.values())
        self._recorded = (self._recorded - self._gone) | self._changed.keys()
        self._gone, self._changed = set(), {}
        deleted: list[Record] = [DeleteGroups(LEFT, _EXTENT, gone)] if gone else []
        return [*deleted, *self._records(changed)]

    def whole(self) -> list[Record]:
        """All of it."""
        return self._records(
            sorted(chain.from_iterable(self.origins.values()), key=lambda each: each.number)
        )

    def restore(self, records: Sequence[Record]) -> list[Record]:
        """Apply what is about this; the other records."""
        others, known = list[Record](), self._by_number()
        for record in records:
            if isinstance(record, SetStates) and record.window == LEFT:
                found = zip(record.groups, record.states, strict=True)
                known |= {number: self._restored(number, state) for number, state in found}
            elif isinstance(record, DeleteGroups) and record.window == LEFT:
                for number in record.groups:
                    known.pop(number, None)
            else:
                others.append(record)
        if len(others) < len(records):
            self.edges, self.origins, self.size_bytes = {}, {}, 0
            for _, each in sorted(known.items()):
                self._add(each)
            self._recorded = set(known)
        return others

    def _by_number(self) -> dict[int, WaitingRow]:
        return {each.number: each for each in chain.from_iterable(self.origins.values())}

    def _records(self, rows: Sequence[WaitingRow]) -> list[Record]:
        if not rows:
            return []
        names = [self._names.get(each.row.origin, each.row.origin) for each in rows]
        states = [each.dump(name) for each, name in zip(rows, names, strict=True)]
        return [SetStates(LEFT, _EXTENT, [each.number for each in rows], states)]

    def _restored(self, number: int, state: list[Any]) -> WaitingRow:
        *fields, said, count = state
        row = Row(*fields)
        row = row._replace(origin=self._numbers.get(row.origin, row.origin))
        mark: Mark = IDLE if said == _IDLE else SILENT if said is None else said
        return WaitingRow(number, row, mark, count, len(row.payload))
