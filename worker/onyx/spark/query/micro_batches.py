"""The streaming source of a query: numbers of micro-batches as offsets, and in each of them where
every partition is to be read from.

Its rows are requests and not segments: the stage opens the readers itself, as in a batch query, so
nothing of the data is held by the driver or moves through the JVM. How far a batch has read is
known when it is committed, and stored with what it wrote (`driver.committed`). So an offset is a
number, a batch that was not committed may be read anew with whatever there is by then, and one that
was committed is empty when Spark repeats it.

Rejected: positions as offsets. The driver would have to read everything first to know them, and a
repeated batch would still have to be recognised.

Spark runs the source in a process of its own; a file beside the checkpoint says what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from onyx.errors import StateError
from onyx.plugins.protocol import Cursor, Reader
from onyx.spark.query.programs import Query, query_of
from onyx.spark.query.request import PlaceState, Position
from onyx.structs import prepared

DDL = "number int, batch bigint, start string"
Asked = tuple[int, int, Position]
"""Number of a partition, of the batch, and where to read from."""


@prepared
class Reached(msgspec.Struct, frozen=True):
    """What is committed: so many batches, which have read so far."""

    batches: int
    positions: tuple[Position, ...]
    states: tuple[PlaceState, ...] = ()
    """What windows hold behind them."""
    due_ms: int | None = None
    """When the next batch begins even if there is nothing to read, since the epoch: a timer fires,
    or a partition becomes idle."""
    ends: bool = False
    """Whether the next batch reads nothing and is the last one, because the job drains."""


def asked_of(batch: pa.RecordBatch) -> Iterator[Asked]:
    """The requests in rows of the source."""
    columns = [batch.column(name).to_pylist() for name in ("number", "batch", "start")]
    for number, its_batch, start in zip(*columns, strict=True):
        yield number, its_batch, msgspec.json.decode(start, type=Position)


def write_reached(path: Path, reached: Reached) -> None:
    """Replace what the source reads."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(reached))
    new.replace(path)


def due_ms(query: Query, positions: Iterable[Position], states: Iterable[PlaceState]) -> int | None:
    """When a batch begins even if there is nothing to read; None: never."""
    found = [each.due_ms for each in states if each.due_ms is not None]
    if any(each.watermarks != "none" for each in query.plan.exchanges):
        for each in positions:
            timeout_ms = query.job.entry(each.task).idle_timeout
            if timeout_ms is not None and not each.exhausted and not each.idle:
                found.append(each.seen_ms + timeout_ms)
    return min(found, default=None)


class Batches:
    """What the source decides, without Spark."""

    def __init__(self, query: Query, path: Path) -> None:
        """`path`: the file that says what is committed."""
        self._query = query
        self._path = path
        self._readers: list[Reader] = []
        self._open_for = -1

    def reached(self) -> Reached:
        """What is committed now."""
        return msgspec.json.decode(self._path.read_bytes(), type=Reached)

    def next_offset(self, after: int) -> int:
        """The offset behind the next batch; the same if there is nothing to read.

        Raises:
            StateError: the checkpoint is ahead of what is committed.
        """
        reached = self.reached()
        if after > reached.batches:
            raise StateError(
                f"Spark's checkpoint has {after} batches, but {reached.batches} are committed: it "
                "is of another job"
            )
        if after < reached.batches:
            return reached.batches
        return after + 1 if self._is_due(reached) or self._has_news(reached) else after

    def asked(self, end: int) -> list[Asked]:
        """The requests of the batch that ends at an offset; none if it is committed."""
        reached = self.reached()
        if end <= reached.batches:
            return []
        return [
            (number, end, each)
            for number, each in enumerate(reached.positions)
            if reached.ends or not each.exhausted
        ]

    def _is_due(self, reached: Reached) -> bool:
        due_ms = reached.due_ms
        return reached.ends or (due_ms is not None and self._query.clock.wall_ms() >= due_ms)

    def _has_news(self, reached: Reached) -> bool:
        """Whether a reader of any partition has a segment, or has come to its end."""
        if self._open_for != reached.batches:
            self._close()
            self._open(reached)
        for reader in self._readers:
            if len(reader.read(1)) or reader.exhausted():
                self._close()
                return True
        return False

    def _open(self, reached: Reached) -> None:
        self._open_for = reached.batches
        for each in reached.positions:
            if each.exhausted:
                continue
            plugin = self._query.kept_input(each.task)
            reader = plugin.open(each.name, Cursor(each.cursor, each.state))
            for _ in range(each.position - each.cursor):
                reader.read(1)
            self._readers.append(reader)

    def _close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers.clear()
        self._open_for = -1


def batches_of(options: Mapping[str, str]) -> Batches:
    """What an instance of the source with these options decides by."""
    return Batches(query_of(options["config"]), Path(options["reached"]))
