"""A join of two streams by a plain nested loop, over rows none of which is late; and the state of a
real one without a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from onyx.operators.stream_join.operator import JoinedStreams
from onyx.program.operator import BatchWork

Row = Mapping[str, Any]


class HeldStreams(JoinedStreams):
    """Rows are added to it, and batches are not."""

    def change(self, work: BatchWork) -> None:
        raise AssertionError("it has no task")


@dataclass(frozen=True, slots=True)
class Plain:
    """What is joined, in the words of a manifest."""

    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    before: int | None = None
    after: int = 0
    range: int | None = None
    prefixes: tuple[str, str] = ("", "")
    at: tuple[str, str] = ("at", "at")

    def meet(self, left: Row, right: Row) -> bool:
        mine, other = self._key(0, left), self._key(1, right)
        if None in mine or None in other or mine != other:
            return False
        apart = right[self.at[1]] - left[self.at[0]]
        if self.how == "asof":
            return apart <= 0 and (self.before is None or -self.before <= apart)
        if self.range is not None:
            return left[self.at[0]] // self.range == right[self.at[1]] // self.range
        return -(self.before or 0) <= apart <= self.after

    def _key(self, side: int, row: Row) -> tuple[Any, ...]:
        return tuple(_comparable(row.get(key)) for key in self.keys[side])

    def join(self, lefts: Sequence[Row], rights: Sequence[Row]) -> list[dict[str, Any]]:
        """All results."""
        made: list[dict[str, Any]] = []
        met: set[int] = set()
        for left in lefts:
            partners = [(at, right) for at, right in enumerate(rights) if self.meet(left, right)]
            if self.how == "asof" and partners:
                partners = [max(partners, key=lambda each: (each[1][self.at[1]], each[0]))]
            met.update(at for at, _ in partners)
            made += [{**self.named(1, right), **self.named(0, left)} for _, right in partners]
            if not partners and self.how in ("left", "outer", "asof"):
                made.append(self.named(0, left))
        if self.how in ("right", "outer"):
            made += [self.named(1, right) for at, right in enumerate(rights) if at not in met]
        return made

    def named(self, side: int, row: Row) -> dict[str, Any]:
        return {self.prefixes[side] + key: value for key, value in row.items()}


def counted(rows: Iterable[Row]) -> Counter[tuple[tuple[str, str], ...]]:
    """Rows in no order, where a null is as good as nothing, and a float as the int that it is."""
    return Counter(
        tuple(sorted((key, _shown(value)) for key, value in row.items() if value is not None))
        for row in rows
    )


def _shown(value: Any) -> str:
    return repr(int(value) if isinstance(value, float | Decimal) and value % 1 == 0 else value)


def _comparable(value: Any) -> Any:
    """None equals nothing, and True is not 1."""
    return None if value is None else (type(value) is bool, value)
