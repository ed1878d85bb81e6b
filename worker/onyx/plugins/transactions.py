"""Outputs into stores that have transactions: rows and position in one transaction.

Segments are gathered. A transaction that is large or old enough is *applied*: one transaction of
the store writes its segments and moves the writer's *position* to its number. If the position has
that number already, nothing is written. So a transaction of unknown outcome is applied again
without harm, by its writer or by another one, at the same time or much later.

Under exactly-once the state log commits the segments themselves before the store gets any
(`begin`). A worker that takes over applies what was committed; what was not is replayed. A writer
that wakes up late can only apply what is committed, which is right or already done.

Each instance is one writer, under a name that is never used again. Its position exists before it
takes a segment. It is removed when its incarnation has been declared dead (`fence`), when the
instance leaves with nothing in doubt (`close`), and at the end of the job (`seal`).

Invariant: without a position nothing is applied. So removing the position is the fence, and there
are never more positions than writers that may still write.

Columns have classes of their own, so that a `TransactionWriter` of a user, which may change
segments in `write`, gets all of them there, and a `TransactionStore` of a user need not know
columns.

Rejected: prepared transactions (XA), which most stores lack or switch off, and which hold locks
until a worker that may be dead decides; one position for each slot, for which two incarnations
would compete.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
from msgspec import field

from onyx.codec import columns as column_codec
from onyx.codec import segments as segment_codec
from onyx.codec.segments import decode, encode
from onyx.errors import Fenced, OnyxError, SegmentError, Unavailable
from onyx.flow.batch import Segments
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.ids import GroupId
from onyx.plugins.options import task_error
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.rolling import TRANSACTION_LIMITS, RollingWriter, RollLimits

Packed = list[bytes]
"""The segments of one `write`, encoded: JSON data, as it is part of a token."""
_numbers = itertools.count()
"""Numbers of writers within this process: with the incarnation, it makes their names unique."""


class TransactionStore(Protocol):
    """What one task of a job writes to, and where the positions of its writers are.

    Writers are named `<incarnation>.<number>`, unique within the task of the job. A store keeps the
    positions of each task apart.

    Any method but `close` may raise Unavailable (the outcome is unknown; the same call is repeated)
    and UserError (it will never succeed; says which table or topic, and what to do). `apply` and
    `close` are called from any thread.
    """

    def check(self, segments: Sequence[Segment]) -> None:
        """Find what is wrong without writing, before anything is committed. Raises UserError when a
        segment cannot be written, with its key."""
        ...

    def open(self, writer: str) -> None:
        """Make a position for a new writer, at 0. Idempotent."""
        ...

    def apply(self, writer: str, number: int, segments: list[Segment]) -> bool:
        """In one transaction: write the segments and move the position to `number`, from 1.

        Nothing is written if the position is there or beyond. Safe when several do it at once.

        Returns:
            False if this writer has no position (any more): nothing was written.
        """
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """Remove the positions of writers of other incarnations. When this returns, what they are
        doing has happened or never will."""
        ...

    def forget(self, writer: str | None) -> None:
        """Remove the position of a writer; None removes all of the task. Idempotent."""
        ...

    def close(self) -> None:
        """Release connections; never fails."""
        ...


class _Transaction(msgspec.Struct):
    """A unit of `rolling`."""

    writer: str
    opened_s: float
    packed: list[Packed] = field(default_factory=list)
    """The segments of each `write`."""
    segments: int = 0
    size_bytes: int = 0
    number: int = 0
    """Given when it is full."""
    token: Token | None = None
    committed: bool = False

    def make_token(self) -> Token:
        return {"writer": self.writer, "number": self.number, "segments": self.packed}


class TransactionWriter(RollingWriter):
    """An output (`protocol.Output`, `protocol.TransactionalOutput`) over a store."""

    def __init__(
        self,
        store: TransactionStore,
        context: PluginContext,
        limits: RollLimits = TRANSACTION_LIMITS,
    ) -> None:
        super().__init__(context, limits)
        self._store = store
        self._writer = f"{context.incarnation}.{next(_numbers)}"
        self._known = False
        """Whether the store keeps a position for this writer."""
        self._number = 0
        self._open: _Transaction | None = None
        self._full: _Transaction | None = None
        """To be applied before anything else is."""

    def begin(self, commit: Commit) -> None:
        """Write exactly once from now on: see `protocol.TransactionalOutput`.

        A transaction in doubt is left to whoever recovers the state log, which knows the outcome.
        """
        with self._guarded():
            if self._full is not None and self._full.committed:
                self._apply(self._full)
        self._open = self._full = None
        self._begin(commit)

    def finish(self, token: Token) -> None:
        """Apply a committed transaction: see `protocol.TransactionalOutput`. A writer without a
        position had it applied earlier, because `close` and `seal` keep positions in doubt."""
        with self._guarded():
            self._apply_packed(token["writer"], token["number"], token["segments"])

    def write(self, segments: list[Segment]) -> None:
        """Add segments to the open transaction. The segments of one call stay together.

        Raises:
            UserError: a segment cannot be written.
            Unavailable: the store cannot be reached now; nothing was taken.
            Fenced: this incarnation was declared dead.
        """
        if segments:
            self._take(len(segments), lambda: self._packed(segments))

    def _take(self, count: int, pack: Callable[[], Packed]) -> None:
        """Add so many segments, which `pack` checks and encodes."""
        with self._guarded():
            if self._full is not None:
                self._publish()
            if self._full is not None:
                raise Unavailable(
                    f"task {self._context.task!r}: this incarnation may have been declared dead; "
                    "waiting until that is known"
                )
        packed = pack()  # what it refuses is not taken, and breaks nothing
        with self._guarded():
            # Before the first segment is taken: what is taken must be applied some time, and
            # without a position nothing is.
            if not self._known:
                self._store.open(self._writer)
                self._known = True
            self._add(packed, count)
            # These segments are taken, so it is the next call that raises.
            with contextlib.suppress(Unavailable):
                if self._is_due(self._open):
                    self._publish()

    def tick(self) -> None:
        """Apply the open transaction if it is due, and what could not be applied before."""
        with self._guarded():
            self._tend_fence()
            if self._flushing or self._full is not None or self._is_due(self._open):
                self._publish()

    def seal(self) -> None:
        """Apply what is left; then the task needs no positions any more."""
        self.flush()
        if self._open is None and self._full is None:
            with self._guarded():
                self._store.forget(None)

    def close(self) -> None:
        """Drop what is not committed. A committed transaction counts as written: it is applied
        here, or left to whoever reads its commit, and then the position stays as well."""
        full, self._open, self._full = self._full, None, None
        with contextlib.suppress(OnyxError):
            if full is not None and full.committed:
                self._apply(full)
                full = None
            # A token that was handed out may be committed, although no answer has come. Whoever
            # reads the commit applies it, and would take it for applied if the position were gone.
            in_doubt = full is not None and full.token is not None
            if self._known and not in_doubt:
                self._store.forget(self._writer)
        self._store.close()

    def _fence_off(self, live: Sequence[GroupId]) -> None:
        self._store.fence([*live, self._context.incarnation])

    def _packed(self, segments: list[Segment]) -> Packed:
        try:
            packed = [encode(segments)]
        except SegmentError as error:
            raise task_error(self._context, str(error)) from error
        self._store.check(segments)
        return packed

    def _add(self, packed: Packed, segments: int) -> None:
        if self._open is None:
            self._open = _Transaction(self._writer, self._context.clock.monotonic_s())
        self._open.packed.append(packed)
        self._open.segments += segments
        self._open.size_bytes += size_of(packed)

    def _publish(self) -> None:
        """Commit and apply what there is, one transaction after another."""
        while self._context.permitted():
            self._tend_fence()
            if self._full is None and self._open is not None:
                # Given once: a repeat after an unknown outcome has to be the same transaction to
                # the store, or its segments would be there twice.
                self._number += 1
                self._open.number = self._number
                self._full, self._open = self._open, None
            if self._full is None:
                self._flushing = False
                return
            self._commit_once(self._full)
            self._apply(self._full)
            self._full = None

    def _apply(self, transaction: _Transaction) -> None:
        if not self._apply_packed(self._writer, transaction.number, transaction.packed):
            raise Fenced(
                f"task {self._context.task!r}: the position of writer {self._writer} is gone, "
                "because it was declared dead (or somebody removed it)"
            )
        self._durable += transaction.segments

    def _apply_packed(self, writer: str, number: int, packed: Sequence[Packed]) -> bool:
        segments = [segment for (each,) in packed for segment in decode(each)]
        return self._store.apply(writer, number, segments)


def size_of(packed: Packed) -> int:
    """Bytes of one packed `write`."""
    return sum(map(len, packed))


class ColumnsStore(TransactionStore, Protocol):
    """A `TransactionStore` that writes columns as well. The methods raise like its own."""

    def check_columns(self, columns: Columns) -> None:
        """`check` for segments in columns."""
        ...

    def apply_runs(self, writer: str, number: int, runs: Sequence[Segments]) -> bool:
        """`apply` for dicts and columns in their order."""
        ...


class ColumnsTransactionWriter(TransactionWriter):
    """A `TransactionWriter` that takes columns (`protocol.ColumnsOutput`)."""

    def __init__(
        self, store: ColumnsStore, context: PluginContext, limits: RollLimits = TRANSACTION_LIMITS
    ) -> None:
        super().__init__(store, context, limits)
        self._columns_store = store

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes as `write`. The rows of one call stay together, as the segments of one call do."""
        if columns.num_rows:
            self._take(columns.num_rows, lambda: self._packed_columns(Columns(columns)))

    def _packed_columns(self, columns: Columns) -> Packed:
        try:
            schema = column_codec.encode_schema(columns.record_batch.schema)
        except SegmentError as error:
            raise task_error(self._context, str(error)) from error
        self._columns_store.check_columns(columns)
        return [schema, column_codec.encode(columns)]

    def _apply_packed(self, writer: str, number: int, packed: Sequence[Packed]) -> bool:
        return self._columns_store.apply_runs(writer, number, list(_runs(packed)))


def _runs(packed: Sequence[Packed]) -> Iterator[Segments]:
    """What was written. Dicts of several calls are one run."""
    segments: list[Segment] = []
    for each in packed:
        if len(each) == 1:
            segments += segment_codec.decode(each[0])
            continue
        if segments:
            yield segments
            segments = []
        schema, batch = each
        yield column_codec.decode(batch, column_codec.decode_schema(schema))
    if segments:
        yield segments
