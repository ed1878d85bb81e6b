"""How a function gives something back to whoever sent the segment: it calls `ack_return`.

    def price(order):
        onyx.ack_return("total", order["count"] * 3)
        return order

The value belongs to the tree of the segment. It travels with the acks, is put together with those
of other functions and segments as the job says (`spec.ackReturns`), and is in the answer to the
request. A function over a whole batch gives one value for each of its segments.

A value that cannot be given back is an error for its key in the answer, and no failure of the
segment, because that depends on data. A key that the job does not name is a mistake in the
function, which fails. Where there is no request, as in a job without `spec.ackReturns`, in a
trigger or in a test of the function, a call does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from onyx.errors import SegmentError, UserError

T = TypeVar("T")
VALUE_BYTES_MAX = 65_536
"""The size of one value, encoded."""
LOST = (
    "what was given back before a failure or a change of workers is not known any more; the "
    "segments are processed"
)
"""Why there is no value."""


class Returned(NamedTuple):
    """A value for one segment."""

    at: int
    """Index of the segment in its batch."""
    key: str
    value: Any
    error: str = ""
    """Why there is none."""


class _Collector:
    """What is given back while a function works on a batch."""

    def __init__(self, keys: Collection[str], count: int, size_bytes: Callable[[Any], int]) -> None:
        self.keys = keys
        self.count = count
        self.size_bytes = size_bytes
        self.index: int | None = None
        """The segment that the function has; None: all of them."""
        self.current: Callable[[], int] | None = None
        """Gives the segment that a processor has."""
        self.found: list[Returned] = []

    def add(self, key: str, value: Any) -> None:
        if key not in self.keys:
            raise UserError(
                f"ack_return({key!r}, ...): the job names no such key; add {key}: sum (or count, "
                "min, max, last, collect) to spec.ackReturns"
            )
        index = self.index if self.current is None else self.current()
        if index is not None:
            self._add(index, key, value)
            return
        values = value.to_pylist() if hasattr(value, "to_pylist") else list(value)
        if len(values) != self.count:
            raise UserError(
                f"ack_return({key!r}, ...) gives {len(values)} values for {self.count} segments: a "
                "function over a whole batch gives one for each, None for none"
            )
        for index, each in enumerate(values):
            if each is not None:
                self._add(index, key, each)

    def _add(self, index: int, key: str, value: Any) -> None:
        error = self._error(key, value)
        self.found.append(Returned(index, key, None if error else value, error))

    def _error(self, key: str, value: Any) -> str:
        """Why a value cannot be given back; empty if it can."""
        try:
            size_bytes = self.size_bytes(value)
        except SegmentError as error:
            return f"ack_return({key!r}, ...): {error}"
        if size_bytes <= VALUE_BYTES_MAX:
            return ""
        return (
            f"ack_return({key!r}, ...) gives a value of {size_bytes:,} bytes; at most "
            f"{VALUE_BYTES_MAX:,} are possible"
        )


_collector: ContextVar[_Collector | None] = ContextVar("onyx_ack_returns", default=None)


def ack_return(key: str, value: Any) -> None:
    """Give a value back to whoever sent the segment that this function works on, in a job with
    `spec.ackReturns`; elsewhere nothing happens. In a processor it is the item that the inbox gave
    last. In place of a value that is too large or of a type that cannot travel the answer has an
    error for the key.

    Args:
        key: one that `spec.ackReturns` of the job names.
        value: anything that a segment may hold, up to 65,536 bytes. In a function over a whole
            batch (`batchFn`, `batchFormat: arrow`) a list or array with one for each segment, None
            for none.

    Raises:
        UserError: the job names other keys and not this one, or a function over a whole batch does
            not give one value for each segment.
    """
    collector = _collector.get()
    if collector is not None:
        collector.add(key, value)


@contextmanager
def collecting(
    keys: Collection[str], count: int, size_bytes: Callable[[Any], int]
) -> Iterator[list[Returned]]:
    """Collects what is given back in the block, for a batch of so many segments.

    Args:
        keys: those that may be given; nothing is collected without any.
        size_bytes: the size of a value, encoded; raises SegmentError where it cannot travel.
    """
    if not keys:
        yield []
        return
    collector = _Collector(keys, count, size_bytes)
    token = _collector.set(collector)
    try:
        yield collector.found
    finally:
        _collector.reset(token)


def give_again() -> None:
    """What has been given back in the block is forgotten: it will be given again."""
    collector = _collector.get()
    if collector is not None:
        collector.found.clear()


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """What is given back in the block belongs to nobody."""
    token = _collector.set(None)
    try:
        yield
    finally:
        _collector.reset(token)


def gives_back() -> bool:
    """Whether something may be given back now."""
    return _collector.get() is not None


@contextmanager
def item_by_item(current: Callable[[], int] | None) -> Iterator[None]:
    """What is given back in the block is for the item of the number that `current` gives; for all
    of them, if there is none."""
    collector = _collector.get()
    if collector is None or current is None:
        yield
        return
    collector.current = current
    try:
        yield
    finally:
        collector.current = None


def lost(keys: Collection[str], unapplied: Iterable[bool] | None) -> list[Returned]:
    """In place of values for segments that a function has had before a failure, and does not get
    again.

    Args:
        unapplied: whether the function gets each of them; None: it gets all.
    """
    if not keys or unapplied is None:
        return []
    had = (index for index, again in enumerate(unapplied) if not again)
    return [Returned(index, key, None, LOST) for index in had for key in keys]


def one_by_one(segments: Sequence[T]) -> Iterable[T]:
    """The segments, as a function gets them one by one: each gives back for itself."""
    collector = _collector.get()
    return segments if collector is None else _numbered(collector, segments)


def _numbered(collector: _Collector, segments: Sequence[T]) -> Iterator[T]:
    for collector.index, segment in enumerate(segments):
        yield segment
    collector.index = None
