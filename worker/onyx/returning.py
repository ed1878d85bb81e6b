"""How a function gives something back to whoever sent the segment: it calls `ack_return`.

    def price(order):
        onyx.ack_return("total", order["count"] * 3)
        return order

The value belongs to the tree of the segment. It travels with the acks, is put together with those
of other functions and segments as the job says (`spec.ackReturns`), and is in the answer to the
request. A function over a whole batch gives one value for each of its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from onyx.errors import UserError

T = TypeVar("T")
VALUE_BYTES_MAX = 65_536
"""The size of one value, encoded."""


class Returned(NamedTuple):
    """A value for one segment."""

    at: int
    """Index of the segment in its batch."""
    key: str
    value: Any


class _Collector:
    """What is given back while a function works on a batch."""

    def __init__(self, keys: Collection[str], count: int, size_bytes: Callable[[Any], int]) -> None:
        self.keys = keys
        self.count = count
        self.size_bytes = size_bytes
        self.index: int | None = None
        """The segment that the function has; None: all of them."""
        self.found: list[Returned] = []

    def add(self, key: str, value: Any) -> None:
        if key not in self.keys:
            raise UserError(
                f"ack_return({key!r}, ...): the job names no such key; add {key}: sum (or count, "
                "min, max, last, collect) to spec.ackReturns"
            )
        if self.index is not None:
            self._add(self.index, key, value)
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
        size_bytes = self.size_bytes(value)
        if size_bytes > VALUE_BYTES_MAX:
            raise UserError(
                f"ack_return({key!r}, ...) gives a value of {size_bytes:,} bytes; at most "
                f"{VALUE_BYTES_MAX:,} are possible"
            )
        self.found.append(Returned(index, key, value))


_collector: ContextVar[_Collector | None] = ContextVar("onyx_ack_returns", default=None)


def ack_return(key: str, value: Any) -> None:
    """Give a value back to whoever sent the segment that this function works on.

    Args:
        key: one that `spec.ackReturns` of the job names.
        value: anything that a segment may hold, up to 65,536 bytes. In a function over a whole
            batch (`batchFn`, `batchFormat: arrow`) a list or array with one for each segment, None
            for none.

    Raises:
        UserError: the job names no such key, the value is too large or of a type that cannot
            travel, or no function of a job calls.
    """
    collector = _collector.get()
    if collector is None:
        raise UserError(
            "ack_return is called where nothing can be given back: only functions of tasks can, in "
            "a job with spec.ackReturns"
        )
    collector.add(key, value)


@contextmanager
def collecting(
    keys: Collection[str], count: int, size_bytes: Callable[[Any], int]
) -> Iterator[list[Returned]]:
    """Collects what is given back in the block, for a batch of so many segments.

    Args:
        keys: those that may be given; nothing is collected without any.
        size_bytes: the size of a value, encoded; raises UserError where it cannot travel.
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


def one_by_one(segments: Sequence[T]) -> Iterable[T]:
    """The segments, as a function gets them one by one: each gives back for itself."""
    collector = _collector.get()
    return segments if collector is None else _numbered(collector, segments)


def _numbered(collector: _Collector, segments: Sequence[T]) -> Iterator[T]:
    for collector.index, segment in enumerate(segments):
        yield segment
    collector.index = None
