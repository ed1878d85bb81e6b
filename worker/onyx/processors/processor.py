"""What a task is whose work is an object, with its inbox and outbox, and building blocks of one.

A processor is made anew for each allocation version of its job, restored, and used by one thread at
a time. No method is called while another one is not done, but for those that
`completes_in_pages` names.

What a processor sends, and what it saves, is bounded, and is refused where it is too much. An item
that was refused is to be offered again, before any other. This is checked: a processor that forgets
one would lose data under load only, which is when nobody looks. Building blocks go on where a full
outbox has stopped them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from onyx.errors import UserFunctionError, describe_type
from onyx.functions.retry import Fail, Retry, asked_by
from onyx.functions.returning import gives_back

T = TypeVar("T")


Accept = Callable[[Any], tuple[Any, int]]
"""An item in the form that is sent, and for how many segments it counts."""
_NOTHING: Any = object()


class Processor:
    """Base class. Override what is needed: at least `process_item`, or `process`.

    A method that returns a bool is called again until that is True, with room in the outbox.
    """

    is_cooperative: ClassVar[bool] = True
    """Whether all methods return soon, so that the task shares a thread with others. False: they
    may block, and the task has a thread of its own."""
    saves_changes: ClassVar[bool] = False
    """Whether `save_to_snapshot` offers only what has changed since it was called last. False: it
    offers everything, and what it does not offer is gone."""
    completes_in_pages: ClassVar[bool] = False
    """Whether state may be saved, and what was offered be sent, between two calls of `complete`, of
    `complete_edge` and of `try_process`. False: what one of these offers is kept in memory until it
    is done."""

    outbox: Outbox
    """Takes what is sent; there from `init` on."""
    context: Context
    """Where the processor runs; there from `init` on."""

    def init(self) -> None:
        """Called first, before anything is restored."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        """Work on what has come from one task, and remove from the inbox what is done with. Called
        again until it is empty.

        Args:
            ordinal: number of the task that it comes from (`context.parents`).
            inbox: segments, or record batches where the task has columns.
        """
        while inbox and (done := self.process_item(ordinal, inbox.peek())):
            if done is True or asked_by(done) is None:
                inbox.remove()
            else:
                inbox.fail(done)

    def process_item(self, ordinal: int, item: Any) -> bool | Fail | Retry:
        """Work on one item; False: call again with the same one. `onyx.FAIL` or an `onyx.Retry`, of
        an item that has changed nothing yet: it is to be read again."""
        raise NotImplementedError("a processor has process_item or process")

    def try_process(self) -> bool:
        """Called before each inbox, and now and then while none comes."""
        return True

    def try_process_watermark(self, watermark: int) -> bool:
        """Event time has come to this many milliseconds since 1970."""
        return True

    def complete_edge(self, ordinal: int) -> bool:
        """Nothing more comes from one of the tasks."""
        return True

    def complete(self) -> bool:
        """Nothing more comes. What was saved is forgotten when it is done."""
        return True

    def save_to_snapshot(self) -> bool:
        """Offer the state to the snapshot, by `outbox.offer_to_snapshot`."""
        return True

    def restore_from_snapshot(self, inbox: Inbox[tuple[Any, Any]]) -> None:
        """Take entries that were saved, each a key and a value, from the inbox. Called again until
        it is empty, and with the next ones. The same key may come twice, from two processors."""
        raise NotImplementedError("a processor that saves its state restores it")

    def finish_snapshot_restore(self) -> bool:
        """All entries have come, if there were any."""
        return True

    def close(self) -> None:
        """Called last, unless the process dies."""

    # Building blocks.

    def try_emit(self, item: Any) -> bool:
        """Offer an item to the outbox; False: return, and try again at the next call."""
        return self.outbox.offer(item)

    def emit_from(self, traverser: Traverser[Any]) -> bool:
        """Offer what is left of a traverser; False: return, and go on with it at the next call."""
        return traverser.offer_all(self.outbox.offer)

    def save_from(self, traverser: Traverser[tuple[Any, Any]]) -> bool:
        """Offer what is left of a traverser of keys and values to the snapshot, likewise."""
        return traverser.offer_all(lambda entry: self.outbox.offer_to_snapshot(*entry))

    def flat_mapper(self, fn: Callable[[T], Iterable[Any]]) -> FlatMapper[T]:
        """What sends all that a function makes of an item."""
        return FlatMapper(self.try_emit, fn)


class Context(msgspec.Struct, frozen=True):
    """Where a processor runs."""

    job_id: str
    task: str
    index: int
    """Number of this processor among those of the task, from 0."""
    processors: int
    """How many the task has now: one a peer."""
    parents: tuple[str, ...]
    """The tasks that segments come from, by ordinal."""


class Inbox(Generic[T]):
    """Items in order. One that stays is there at the next call: remove an item when it is done with
    and all that it makes has been offered."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = deque(items)
        self._count = len(self._items)
        self._removed = False
        """Whether the item that was given last is not here any more."""
        self.failed: list[tuple[int, Exception]] = []
        """The items that have failed, by number, and why."""

    @property
    def last(self) -> int:
        """The number of the item that was given last, from 0; of the first one before that."""
        return max(0, self._count - len(self._items) - self._removed)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """All items, which stay. Meanwhile none may be removed."""
        return self._each() if gives_back() else iter(self._items)

    def _each(self) -> Iterator[T]:
        items, count, self._removed = list(self._items), self._count, False
        try:
            for number, item in enumerate(items):
                self._count = count + number
                yield item
        finally:
            self._count = count

    def keep_first(self) -> None:
        """The engine takes back all items but the first."""
        self._count -= len(self._items) - 1
        self._items = deque([self._items[0]])

    def peek(self) -> T | None:
        """The first item, which stays; None: the inbox is empty."""
        self._removed = False
        return self._items[0] if self._items else None

    def poll(self) -> T | None:
        """The first item, which is removed; None: the inbox is empty."""
        self._removed = True
        return self._items.popleft() if self._items else None

    def remove(self) -> None:
        """Remove the first item. Raises IndexError: the inbox is empty."""
        self._items.popleft()
        self._removed = True

    def fail(self, why: Exception | Fail) -> None:
        """Remove the first item, which has failed: with `onyx.FAIL` or an `onyx.Retry` it is read
        again, with another exception it goes where the job sends what fails in the task. It must
        have changed nothing, and nothing may have been offered for it.

        Raises:
            IndexError: the inbox is empty.
        """
        error = asked_by(why)
        if error is None and not isinstance(why, Exception):
            raise UserFunctionError(
                f"an item fails with {describe_type(why)}: give onyx.FAIL, a Retry, or another "
                "exception"
            )
        self.remove()
        number = self._count - len(self._items) - 1
        self.failed.append((number, error or why))  # type: ignore[arg-type]

    def drain(self) -> list[T]:
        """All items, which are removed."""
        items, self._removed = list(self._items), True
        self._items.clear()
        return items


class _Bucket:
    """What was taken, up to a limit, and what was refused until it is offered again."""

    __slots__ = ("_most", "_must_return", "_refused", "_taken", "weight")

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: list[Any] = []
        self.weight = 0
        self._refused: list[Any] = []
        self._must_return = False

    @property
    def owes(self) -> bool:
        """Whether what was refused is still to be offered again."""
        return bool(self._refused)

    def offer(self, item: Any, accept: Accept) -> bool:
        """Take an item, or refuse it. Raises as `Outbox.offer`."""
        if self._must_return:
            raise UserFunctionError(
                "the outbox has refused an item, and is offered one in the same call: return from "
                "the method when offer returns False, and offer that item at the next call"
            )
        if self._refused and not _same(self._refused.pop(), item):
            raise UserFunctionError(
                "the outbox is offered another item than the one that it refused, which would be "
                "lost: keep what is refused, and offer it at the next call"
            )
        if self.weight >= self._most:
            self._refused, self._must_return = [item], True
            return False
        accepted, weight = accept(item)
        self._taken.append(accepted)
        self.weight += weight
        return True

    def take(self) -> list[Any]:
        """What was taken; there is room again."""
        taken, self._taken = self._taken, []
        self.weight, self._must_return = 0, False
        return taken


class Outbox:
    """The items that a processor has offered since the engine took them last."""

    def __init__(self, accept: Accept, segments_max: int, entries_max: int) -> None:
        """
        Args:
            accept: raises why an item cannot be sent.
            segments_max: at so many segments the outbox is full.
            entries_max: so many entries of the snapshot are taken at once.
        """
        self._accept = accept
        self._items = _Bucket(segments_max)
        self._entries = _Bucket(entries_max)
        self._dropped: list[Any] = []

    # What a processor calls.

    def offer(self, item: Any) -> bool:
        """Send an item: a segment, or a record batch where the task has columns.

        Returns:
            False: there is no room. Return from the method, and offer it again when it is called
            again.

        Raises:
            SegmentError: it cannot be sent.
            UserFunctionError: it is not what was refused last, or was refused in the same call.
        """
        return self._items.offer(item, self._accept)

    def offer_to_snapshot(self, key: Any, value: Any) -> bool:
        """Save an entry of the state, in `save_to_snapshot`. Both are anything that a segment may
        hold. Returns and raises as `offer`."""
        return self._entries.offer((key, value), _as_it_is)

    def drop_from_snapshot(self, key: Any) -> None:
        """An entry is gone. Only where the processor saves changes: what is not offered is gone
        otherwise."""
        self._dropped.append(key)

    # What the engine calls.

    @property
    def segments(self) -> int:
        """How many segments the items count for."""
        return self._items.weight

    @property
    def owes(self) -> bool:
        """Whether the processor still has to offer an item that was refused."""
        return self._items.owes

    @property
    def owes_entry(self) -> bool:
        """Whether it still has to offer an entry that was refused."""
        return self._entries.owes

    def take(self) -> list[Any]:
        """The items, accepted; there is room again."""
        return self._items.take()

    def take_entries(self) -> tuple[list[tuple[Any, Any]], list[Any]]:
        """The entries of the snapshot, and the keys that are gone; there is room again."""
        dropped, self._dropped = self._dropped, []
        return self._entries.take(), dropped


def _as_it_is(item: Any) -> tuple[Any, int]:
    return item, 1


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Frames compare row by row: two that are not the same object are two.
    return isinstance(one, dict | tuple) and bool(one == other)


class Traverser(Generic[T]):
    """Items one by one. The one that was refused comes again."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._next: Any = _NOTHING

    def offer_all(self, offer: Callable[[T], bool]) -> bool:
        """Offer the items that are left, until one is refused; whether all have been taken."""
        while True:
            if self._next is _NOTHING:
                self._next = next(self._items, _NOTHING)
            if self._next is _NOTHING:
                return True
            if not offer(self._next):
                return False
            self._next = _NOTHING


def traverse(items: Iterable[T]) -> Traverser[T]:
    """A traverser of an iterable: a list, a generator, the items of a dict."""
    return Traverser(items)


def traverse_items(*items: T) -> Traverser[T]:
    """A traverser of these items."""
    return Traverser(items)


class FlatMapper(Generic[T]):
    """Sends what a function makes of each item, and is called again for an item of which not all
    was taken."""

    def __init__(self, offer: Callable[[Any], bool], fn: Callable[[T], Iterable[Any]]) -> None:
        """
        Args:
            offer: takes what is made.
            fn: called once for each item.
        """
        self._offer = offer
        self._fn = fn
        self._left: Traverser[Any] | None = None

    def try_process(self, item: T) -> bool:
        """Send what is made of an item, or what is left of that; whether all of it was taken."""
        if self._left is None:
            self._left = Traverser(self._fn(item))
        if not self._left.offer_all(self._offer):
            return False
        self._left = None
        return True
