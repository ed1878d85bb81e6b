"""Outputs into stores that have transactions of their own: rows and position in one of them.

Segments are gathered. A transaction that is large or old enough is applied: its segments are
written and, in the same transaction of the store, that this writer has come to this number. If it
had come there before, nothing is written. So a transaction whose outcome nobody knows is applied
again without harm, by its writer or by anybody else, at the same time or much later.

To write exactly once the segments themselves are committed in the state log before the store sees
any (`begin`). Whoever takes over applies what was committed; what was not is nobody's, and is
replayed. A writer that wakes up late can only apply what was committed, which is right, or has
happened.

Every instance is a writer of its own, whose name never comes again. Its position is made before it
holds a segment and goes away when its incarnation has been declared dead (`fence`), when the
instance leaves with nothing in doubt (`close`), or at the end of the job (`seal`). Without a
position nothing is ever applied, so taking it away is the fence, and there are never more positions
than writers that may still write.

Rejected: prepared transactions (XA), which most stores lack or switch off, and which hold locks
until somebody who may be dead decides; one position for a peer's rank, for which two incarnations
would fight.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onyx.codec.segments import decode, encode
from onyx.errors import Fenced, OnyxError, SegmentError, Unavailable
from onyx.flow.batch import Segment
from onyx.ids import GroupId
from onyx.plugins.deferred_fence import DeferredFence
from onyx.plugins.options import task_error
from onyx.plugins.protocol import Commit, PluginContext, Token
from onyx.plugins.roll_limits import TRANSACTION_LIMITS, RollLimits

_numbers = itertools.count()
"""Of writers within this process: with the incarnation, it makes their names unique."""


class TransactionStore(Protocol):
    """Where one task of a job writes to, and where it keeps the positions of its writers.

    Names of writers are unique within the task of the job, for which the store keeps its positions
    apart from those of others. A name is an incarnation, a dot and a number.

    Any method but `close` may raise Unavailable (it may have happened or not; the same call is
    repeated) and UserError (it will never succeed; says which table or topic and what to do).
    `apply` and `close` are called from any thread.
    """

    def check(self, segments: Sequence[Segment]) -> None:
        """Find what can be found without writing, before anything is committed: raises UserError
        when a segment cannot be written, with its key."""
        ...

    def open(self, writer: str) -> None:
        """Keep a position for a new writer, at 0. Idempotent."""
        ...

    def apply(self, writer: str, number: int, segments: list[Segment]) -> bool:
        """In one transaction: write the segments and bring the writer to `number`, from 1. Nothing
        if it has come there or further before. Safe when several do it at once.

        Returns:
            False if there is no position of this writer (any more): nothing was written.
        """
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take away the positions of writers of other incarnations. What they may be doing at this
        moment has happened when this returns, or never will."""
        ...

    def forget(self, writer: str | None) -> None:
        """Take away the position of a writer, or of all. Idempotent."""
        ...

    def close(self) -> None:
        """Give back connections; never fails."""
        ...


@dataclass(slots=True)
class _Transaction:
    opened_s: float
    packed: list[bytes] = field(default_factory=list)
    """The segments of each `write`."""
    segments: int = 0
    size_bytes: int = 0
    number: int = 0
    """Given when it is full."""
    token: Token | None = None
    """Under which it is committed."""
    committed: bool = False
    """False with a token: perhaps."""


class TransactionWriter:
    """An output (`protocol.Output`, `protocol.TransactionalOutput`) over a store."""

    cooperative = False
    """Every transaction waits for a server or a disk."""

    def __init__(
        self,
        store: TransactionStore,
        context: PluginContext,
        limits: RollLimits = TRANSACTION_LIMITS,
    ) -> None:
        self._store = store
        self._context = context
        self._limits = limits
        self._writer = f"{context.incarnation}.{next(_numbers)}"
        self._known = False
        """Whether the store keeps a position for this writer."""
        self._number = 0
        self._open: _Transaction | None = None
        self._full: _Transaction | None = None
        """To be applied before anything else is."""
        self._flushing = False
        self._fence = DeferredFence(context, self._take_positions)
        self._durable = 0
        self._broken: Exception | None = None
        self._commit: Commit | None = None

    def begin(self, commit: Commit) -> None:
        """Write exactly once from now on: see `protocol.TransactionalOutput`.

        What is in doubt is left to those who take over the state log: they know.
        """
        with self._guarded():
            if self._full is not None and self._full.committed:
                self._apply(self._full)
        self._open = self._full = None
        self._flushing = False
        self._fence.drop()
        self._commit = commit

    def finish(self, token: Token) -> None:
        """Apply what was committed: see `protocol.TransactionalOutput`. Without a position of its
        writer it was applied long ago."""
        with self._guarded():
            self._store.apply(token["writer"], token["number"], _unpacked(token["segments"]))

    def write(self, segments: list[Segment]) -> None:
        """Add segments to the open transaction. Those of one call are never parted.

        Raises:
            UserError: a segment cannot be written.
            Unavailable: the store cannot be reached now; nothing was taken.
            Fenced: this incarnation was declared dead.
        """
        if not segments:
            return
        with self._guarded():
            if self._full is not None:
                self._publish()
            if self._full is not None:
                raise Unavailable(
                    f"task {self._context.task!r}: this incarnation may have been declared dead; "
                    "waiting until that is known"
                )
            packed = self._packed(segments)
            if not self._known:
                self._store.open(self._writer)
                self._known = True
            self._add(packed, len(segments))
            with contextlib.suppress(Unavailable):  # told by the next call, which takes nothing
                if self._is_due():
                    self._publish()

    def durable(self) -> int:
        """Segments in transactions that have been applied, in the order of writing."""
        return self._durable

    def flush(self) -> None:
        """Apply the open transaction now; while that is not permitted, as soon as it is."""
        self._flushing = True
        self.tick()

    def tick(self) -> None:
        """Apply the open transaction if it is old enough, and what could not be before."""
        with self._guarded():
            self._fence.tend()
            if self._flushing or self._full is not None or self._is_due():
                self._publish()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Take the positions of incarnations away that are not `live`. One that may be dead itself
        does not judge others: it waits until it is permitted to act."""
        with self._guarded():
            self._fence.ask(live)

    def seal(self) -> None:
        """Apply what is left; then no position of the task is needed any more."""
        self.flush()
        if self._open is None and self._full is None:
            with self._guarded():
                self._store.forget(None)

    def close(self) -> None:
        """Drop what is not applied. What has been committed counts as written: it is applied, or
        left for those who read that, and then the position stays as well."""
        full, self._open, self._full = self._full, None, None
        with contextlib.suppress(OnyxError):
            if full is not None and full.committed:
                self._apply(full)
                full = None
            in_doubt = full is not None and full.token is not None
            if self._known and not in_doubt:
                self._store.forget(self._writer)
        self._store.close()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """After a failure this writer stays broken: what it holds cannot be written. Not so when
        the store could not be reached, which loses nothing."""
        if self._broken is not None:
            raise self._broken
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:
            self._broken = error
            raise

    def _packed(self, segments: list[Segment]) -> bytes:
        try:
            packed = encode(segments)
        except SegmentError as error:
            raise task_error(self._context, str(error)) from error
        self._store.check(segments)
        return packed

    def _add(self, packed: bytes, segments: int) -> None:
        if self._open is None:
            self._open = _Transaction(self._context.clock.monotonic_s())
        self._open.packed.append(packed)
        self._open.segments += segments
        self._open.size_bytes += len(packed)

    def _is_due(self) -> bool:
        limits, transaction = self._limits, self._open
        return transaction is not None and (
            transaction.segments >= limits.segments
            or transaction.size_bytes >= limits.size_bytes
            or self._context.clock.monotonic_s() - transaction.opened_s >= limits.age_s
        )

    def _publish(self) -> None:
        """Commit and apply what there is, one transaction after another."""
        while self._context.permitted():
            self._fence.tend()
            if self._full is None and self._open is not None:
                self._number += 1
                self._open.number = self._number
                self._full, self._open = self._open, None
            if self._full is None:
                self._flushing = False
                return
            self._commit_once(self._full)
            self._apply(self._full)
            self._full = None

    def _commit_once(self, transaction: _Transaction) -> None:
        if self._commit is None:
            return
        if transaction.token is None:
            transaction.token = {
                "writer": self._writer,
                "number": transaction.number,
                "segments": transaction.packed,
            }
        if not transaction.committed:
            self._commit(transaction.token, transaction.segments)
            transaction.committed = True

    def _apply(self, transaction: _Transaction) -> None:
        segments = _unpacked(transaction.packed)
        if not self._store.apply(self._writer, transaction.number, segments):
            raise Fenced(
                f"task {self._context.task!r}: the position of writer {self._writer} is gone, "
                "because it was declared dead (or somebody removed it)"
            )
        self._durable += transaction.segments

    def _take_positions(self, live: Sequence[GroupId]) -> None:
        self._store.fence([*live, self._context.incarnation])


def _unpacked(packed: Sequence[bytes]) -> list[Segment]:
    return [segment for each in packed for segment in decode(each)]
