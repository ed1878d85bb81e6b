"""Turns of a processor, and how it goes back to before one in which an item fails or makes much.

The processor is in the middle of the item then, and cannot save its state. So a new one takes its
place: it gets what was saved last, and does again what was done since (`History`). What it makes is
compared with what was made before.

A history keeps items alive until the next chunk, which costs a processor that does little with each
of them a tenth of its time. So only those have it that are likely to need it: for a while after the
start, and where the job says what becomes of segments that fail. Who needs it and has none starts
again, with state and segments from before, and has it then. On Spark nobody starts again in the
middle of a query, so it is always kept there, and the state is saved when it is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from onyx.errors import UserFunctionError, WorkLost, contained
from onyx.functions.retry import Retry
from onyx.functions.returning import collecting_nothing, give_again
from onyx.operators.processor.calls import MADE_MAX, Calls, CallTurn
from onyx.operators.processor.definition import Processing
from onyx.operators.processor.snapshot import ProcessorSnapshot, Sent, Unfinished

KEPT_FIRST = 200_000
"""After the start everything is kept for so many segments: more than a task can have to do again
that has started anew."""


class Takes(NamedTuple):
    """What takes care of a segment that fails in a task."""

    anything: bool
    """Whether there is something besides retries."""
    retries: bool
    """Whether a segment may be read again."""

    def takes(self, error: Exception) -> bool:
        """Whether something takes care of one that fails with this."""
        return self.anything or (self.retries and isinstance(error, Retry))


class Worked(NamedTuple):
    """What a processor has done with a batch."""

    taken: int
    """So many segments it has taken, from the first on."""
    made: list[Any]
    """What it has made; at last by shard."""
    failed: Sequence[tuple[int, Exception]] = ()
    """The segments among those that have failed, by number."""
    unfinished: Sequence[int] = ()
    """The segments of which more will be made, by number."""

    def and_then(self, other: Worked) -> Worked:
        """With what was done with the segments behind."""
        failed = [(self.taken + at, error) for at, error in other.failed]
        unfinished = [self.taken + at for at in other.unfinished]
        return Worked(
            self.taken + other.taken,
            self.made + other.made,
            [*self.failed, *failed],
            [*self.unfinished, *unfinished],
        )

    def with_unfinished(self, item: Any) -> Worked:
        """With one more item, which is not finished."""
        segments = _segments([item])
        return self.and_then(Worked(segments, [], (), range(segments)))


class Turns:
    """The turns of one task on one peer. Not thread-safe."""

    def __init__(
        self,
        its: Processing,
        begin: Callable[[], Calls],
        snapshot: ProcessorSnapshot,
        durable: bool,
        save: Callable[[], None],
    ) -> None:
        """
        Args:
            begin: makes a processor that has begun.
            snapshot: has what was saved last.
            durable: whether whoever takes over goes on from what was recorded last.
            save: saves the state of the processor.
        """
        self.calls = begin()
        """The processor."""
        self._its = its
        self._begin = begin
        self._snapshot = snapshot
        self._durable = durable
        self._save = save
        self._history = History()
        self._keeps = False
        """Whether all is kept in any case, because the job takes care of segments that fail."""

    def all_of(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method until it is done; what it has offered."""
        made = self.calls.all_of(method, *arguments)
        self.did(method, arguments, made)
        return made

    def did(self, method: str, arguments: tuple[Any, ...], made: list[Any]) -> None:
        """A method was called until it was done, and has made this."""
        self._history.add(FinishedCall(method, arguments, made), 0, self._keeps)

    def saved(self) -> None:
        """The state was saved."""
        self._history.saved()

    @property
    def wants_save(self) -> bool:
        """Whether the state should be saved, though nobody asks for it, because much has been done
        since then."""
        return not self._durable and self._history.is_full

    def take(self, ordinal: int, items: Sequence[Any], takes: Takes) -> Worked:
        """Have items processed. Raises what the processor raises, unless it is what an item fails
        with.

        Args:
            takes: what takes care of segments that fail.
        """
        # Whoever cannot begin anew from what is durable must never have a gap.
        self._keeps = takes.anything or (takes.retries and not self._durable)
        turn = self.calls.process(ordinal, items)
        if turn.error is not None:
            return self._one_by_one(ordinal, items, turn.error, takes)
        if turn.is_large:
            return self._set_aside(ordinal, items, turn, takes)
        return self._done(ordinal, items, turn)

    def _done(self, ordinal: int, items: Sequence[Any], turn: CallTurn) -> Worked:
        """A turn has ended well."""
        assert turn.taken <= len(items), "a processor takes what it was given"
        assert all(at < turn.taken for at, _ in turn.failed), "what fails was taken"
        taken = items if turn.taken == len(items) else items[: turn.taken]
        failed = dict(turn.failed)
        good = [each for at, each in enumerate(taken) if at not in failed] if failed else taken
        done = FinishedCall("process", (ordinal, good), turn.made)
        self._history.add(done, turn.taken, self._keeps)
        rows = [
            (_segments(items[:at]) + row, error)
            for at, error in turn.failed
            for row in range(_segments([items[at]]))
        ]
        return Worked(_segments(taken), turn.made, rows)

    def _set_aside(
        self,
        ordinal: int,
        items: Sequence[Any],
        turn: CallTurn,
        takes: Takes,
    ) -> Worked:
        """The first item that is left makes more than is kept in memory: it is finished before
        anything else is done."""
        assert turn.taken < len(items), "the item that is large was not taken yet"
        before, item, rest = items[: turn.taken], items[turn.taken], items[turn.taken + 1 :]
        if not self._durable:  # this very processor goes on with it
            worked = self._done(ordinal, before, turn)
            self._begin_item(ordinal, item)
            return worked.with_unfinished(item)
        self._go_back()
        again = self.calls.process(ordinal, before, made_max=0)
        if again.error is not None or again.taken < len(before):
            raise again.error or self.differs("process takes")
        worked = self._done(ordinal, before, again)
        if _segments([item]) > 1:
            with collecting_nothing():
                return worked.and_then(self.take(ordinal, [*_halves(item), *rest], takes))
        self._begin_item(ordinal, item)
        return worked.with_unfinished(item)

    def _one_by_one(
        self,
        ordinal: int,
        items: Sequence[Any],
        error: UserFunctionError,
        takes: Takes,
    ) -> Worked:
        """The processor has raised. Which item has failed is known when each comes alone; the state
        before that is found again."""
        cause = error.__cause__
        # What Onyx has to say of the processor is said of no item.
        if isinstance(cause, UserFunctionError) or not takes.takes(contained(cause or error)):
            raise error
        worked = Worked(0, [])
        self._go_back()
        self._save()
        for at, item in enumerate(items):
            turn = self.calls.process(ordinal, [item], first=at)
            if turn.is_large:
                return worked.and_then(self._set_aside(ordinal, [item], turn, takes))
            if turn.error is None:
                worked = worked.and_then(self._done(ordinal, [item], turn))
            elif _segments([item]) > 1:
                with collecting_nothing():
                    part = self._one_by_one(ordinal, _halves(item), turn.error, takes)
                worked = worked.and_then(part)
            else:
                self._go_back(forget=False)
                self._save()
                failed = contained(turn.error.__cause__ or turn.error)
                worked = worked.and_then(Worked(1, [], [(0, failed)]))
            if worked.taken < _segments(items[: at + 1]):
                break
        return worked

    def _begin_item(self, ordinal: int, item: Any) -> None:
        shard = self._snapshot.place(self._its.group_of(item))
        self._snapshot.begin_item(Unfinished(shard, ordinal, item))

    def _go_back(self, forget: bool = True) -> None:
        """Another processor takes the place of this one, which is in the middle of an item: with
        what was saved last, and after what was done since.

        Args:
            forget: what the batch has given back is given again.
        """
        if forget:
            give_again()
        self.calls.close()
        self.calls = self._begin()
        with collecting_nothing():
            self.calls.restore(self._snapshot.entries())
            for done in self._history:
                made = self._again(done.method, *done.arguments)
                if Sent().and_then(made) != Sent().and_then(done.made):
                    raise self.differs(f"{done.method} makes")

    def _again(self, method: str, *arguments: Any) -> list[Any]:
        if method != "process":
            return self.calls.all_of(method, *arguments)
        ordinal, items = arguments
        turn = self.calls.process(ordinal, items, made_max=0)
        if turn.error is not None or turn.taken < len(items) or turn.failed:
            raise turn.error or self.differs("process takes")
        return turn.made

    def differs(self, what: str) -> UserFunctionError:
        """It is not done again as it was done: an error."""
        return UserFunctionError(
            f"processor {self._its.name}: {what} something else of the same items when it is "
            f"called again, so that an item that fails, or makes more than {MADE_MAX:,} segments, "
            "cannot be separated from others: what is made has to follow from the items and the "
            "state alone"
        )


def _segments(items: Sequence[Any]) -> int:
    """How many segments items are, which are all dicts or all record batches."""
    if items and isinstance(items[0], pa.RecordBatch):
        return sum(map(len, items))
    return len(items)


def _halves(item: pa.RecordBatch) -> list[pa.RecordBatch]:
    half = len(item) // 2
    return [item.slice(0, half), item.slice(half)]


class FinishedCall(NamedTuple):
    """Calls of a method, until it was done."""

    method: str
    arguments: tuple[Any, ...]
    made: Sequence[Any]


class History:
    """The calls of one processor since its state was saved."""

    def __init__(self, kept_first: int = KEPT_FIRST) -> None:
        self._left = kept_first
        self._calls: list[FinishedCall] = []
        self._gap = False
        self._kept = 0
        """So many segments."""

    def add(self, done: FinishedCall, segments: int, wanted: bool) -> None:
        """Something was done.

        Args:
            segments: how many the processor has taken.
            wanted: whether to keep it in any case.
        """
        assert segments >= 0, "a call takes segments, or none"
        if wanted or self._left > 0:
            self._calls.append(done)
            self._left -= segments
            self._kept += segments
        else:
            self._gap = True

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that the state should be saved."""
        return self._kept >= KEPT_FIRST

    def saved(self) -> None:
        """The state was saved: this begins anew."""
        self._calls, self._gap, self._kept = [], False, 0

    def __iter__(self) -> Iterator[FinishedCall]:
        """The calls in order. Raises WorkLost: they are not known."""
        if self._gap:
            raise WorkLost(
                "an item of a processor has failed, or makes much, and what was done since its "
                "state was saved is not kept: it is done again, and kept then"
            )
        return iter(self._calls)
