"""What an operator with an inbox has left of the rows of a bucket, and what came behind it.

Rows of an edge (a task upstream) come to the operator in order, and so do those of an origin: event
time of an origin goes on when all before it was taken, as on a peer. So a row waits behind others
of its edge for its segments to be taken, and behind others of its origin for its watermark to be
heard.

What waits outlives a micro-batch: it is recorded in the chunks of the bucket, row by row, so that
what waits for long is not written with each. Rejected: not to commit how far inputs were read
before all is taken, since other tasks behind the same input have taken it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from onyx.flow.batch import Indices, Segments, take
from onyx.keystate.records import LEFT, DeleteGroups, Record, SetStates
from onyx.spark_query.rows import Row, payload_of, segments_of
from onyx.windows.watermarks import IDLE, SILENT, Mark

AWAY = "@"
"""Before the name of a partition, in the place of its number: of one that is recorded, or that is
not there now."""
_EXTENT = 0
_IDLE = "idle"


class Waiting(msgspec.Struct):
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


class Left:
    """All that waits in one bucket."""

    def __init__(self, partitions: Sequence[tuple[str, str]]) -> None:
        """`partitions`: of all inputs, each with its task: their origins have numbers, which may be
        others in another query."""
        self._names = {
            f"{task}:{n}": f"{AWAY}{task}:{name}" for n, (task, name) in enumerate(partitions)
        }
        self._numbers = {name: origin for origin, name in self._names.items()}
        self.edges: dict[str, deque[Waiting]] = {}
        """By the task upstream, rows with segments."""
        self.origins: dict[str, deque[Waiting]] = {}
        """By origin, all rows."""
        self.size_bytes = 0
        self._next = 0
        self._recorded: set[int] = set()
        self._changed: dict[int, Waiting] = {}
        self._gone: set[int] = set()

    def add(self, row: Row, segments: Segments, said: Mark) -> Waiting:
        """A row has come."""
        each = Waiting(self._next, row, said, len(segments), len(row.payload), segments)
        self._add(each)
        self._changed[each.number] = each
        return each

    def _add(self, each: Waiting) -> None:
        self._next = each.number + 1
        self.origins.setdefault(each.row.origin, deque()).append(each)
        if each.count:
            self.edges.setdefault(each.row.upstream, deque()).append(each)
            self.size_bytes += each.size_bytes

    def first(self, edge: str, segments_max: int) -> list[Waiting]:
        """The first rows of an edge that make one batch: about so many segments."""
        found: list[Waiting] = []
        for each in self.edges.get(edge, ()):
            if found and (segments_max <= 0 or each.row.kind != found[0].row.kind):
                break
            found.append(each)
            segments_max -= each.count
        return found

    def keep(self, edge: str, rows: Sequence[Waiting], left: Indices) -> None:
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

    def _by_number(self) -> dict[int, Waiting]:
        return {each.number: each for each in chain.from_iterable(self.origins.values())}

    def _records(self, rows: Sequence[Waiting]) -> list[Record]:
        if not rows:
            return []
        names = [self._names.get(each.row.origin, each.row.origin) for each in rows]
        states = [each.dump(name) for each, name in zip(rows, names, strict=True)]
        return [SetStates(LEFT, _EXTENT, [each.number for each in rows], states)]

    def _restored(self, number: int, state: list[Any]) -> Waiting:
        *fields, said, count = state
        row = Row(*fields)
        row = row._replace(origin=self._numbers.get(row.origin, row.origin))
        mark: Mark = IDLE if said == _IDLE else SILENT if said is None else said
        return Waiting(number, row, mark, count, len(row.payload))
