"""How far a stream has followed the parts of an output. Pure.

An offset maps each writer to a mark: the next row that is to be read, as the number of its part and
its index there. A writer is one slot of the task in one incarnation of a worker, and it publishes
parts in the order of their numbers (`plugins/parts/writer`). So what a writer publishes later is
behind its mark, and a writer that comes later has none yet: nothing slips in before an offset, also
with several peers, lost workers and upgrades.

Numbers have no gaps, so a part that is missing before another one of its writer is gone (`gaps`).
A mark also counts the parts before it. A batch between two offsets has as many parts as the counts
say, or it is refused: parts that were removed before a batch is repeated are an error, and not rows
that are missing.

Rejected: one order of all parts, by name or by time of change (a part of another peer would come
before some that are read already); the set of the names (it grows with each part).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from onyx.base.structs import prepared
from onyx.errors import UserError


class Part(msgspec.Struct, frozen=True):
    """A published part."""

    path: str
    """File, or URL of an object."""
    writer: str
    number: int
    size_bytes: int


@prepared
class Mark(msgspec.Struct, frozen=True):
    """The next row of a writer."""

    part: int = 0
    """All parts with smaller numbers are behind."""
    row: int = 0
    """So many rows of this part are behind."""
    parts: int = 0
    """So many parts are behind."""


Offset = Mapping[str, Mark]
"""By writer."""


class Rows(msgspec.Struct, frozen=True):
    """Consecutive rows of a part."""

    path: str
    first: int = 0
    last: int | None = None
    """Behind the last row; None means to the end."""


class Limit(msgspec.Struct, frozen=True):
    """What a batch may have at most. Of parts and bytes, it has one part at least."""

    rows: int | None = None
    parts: int = sys.maxsize
    size_bytes: int = sys.maxsize


BEGIN = Mark()


def to_json(offset: Offset) -> dict[str, Any]:
    """An offset as Spark stores it."""
    return {writer: msgspec.to_builtins(mark) for writer, mark in sorted(offset.items())}


def from_json(value: Any) -> dict[str, Mark]:
    """The offset of `to_json`.

    Raises:
        UserError: the checkpoint is one of another source or version.
    """
    try:
        return msgspec.convert(value, dict[str, Mark])
    except msgspec.ValidationError as error:
        raise UserError(
            f"the checkpoint holds an offset that this source does not know: {error}; start the "
            "query with a new checkpoint"
        ) from error


def settled(before: Iterable[Part], after: Iterable[Part]) -> list[Part]:
    """The parts up to the last ones of an earlier listing, as a later one has them.

    A listing may miss what is published while it is made, and have what is published after that.
    What was published before the end of the first listing is whole in the second one.
    """
    last: dict[str, int] = {}
    for part in before:
        last[part.writer] = max(part.number, last.get(part.writer, -1))
    return [part for part in after if part.number <= last.get(part.writer, -1)]


def _renumbered(part: Part, number: int) -> Part:
    """Another part of the same writer."""
    begin, _, suffix = part.path.rpartition(f"{part.writer}-{part.number:06d}")
    return Part(f"{begin}{part.writer}-{number:06d}{suffix}", part.writer, number, 0)


def gaps(start: Offset, parts: Iterable[Part], last: Iterable[Part] = ()) -> list[Part]:
    """The parts that were published and are not there.

    Args:
        start: what is behind it may be gone.
        last: parts that are known to have been published.
    """
    there: dict[str, set[int]] = {}
    newest: dict[str, Part] = {}
    for part in parts:
        there.setdefault(part.writer, set()).add(part.number)
        if part.writer not in newest or part.number > newest[part.writer].number:
            newest[part.writer] = part
    for part in last:
        if part.writer not in newest or part.number > newest[part.writer].number:
            newest[part.writer] = part
    found = []
    for writer, part in sorted(newest.items()):
        numbers = there.get(writer, set())
        wanted = range(start.get(writer, BEGIN).part, part.number + 1)
        found += [_renumbered(part, each) for each in wanted if each not in numbers]
    return found


def end(start: Offset, parts: Iterable[Part]) -> Offset:
    """The offset behind all parts."""
    return advanced(start, parts, Limit(), not_asked)


def advanced(
    start: Offset, parts: Iterable[Part], limit: Limit, rows_of: Callable[[Part], int]
) -> Offset:
    """The offset of the next batch.

    Args:
        start: where it begins.
        parts: all that are published.
        limit: of the batch.
        rows_of: of a part; asked only with a limit of rows.
    """
    marks = dict(start)
    rows, size_bytes = limit.rows, 0
    for files, part in enumerate(unread(start, parts)):
        if files >= limit.parts or (files and size_bytes + part.size_bytes > limit.size_bytes):
            break
        mark = marks.get(part.writer, BEGIN)
        done = mark.row if mark.part == part.number else 0
        if rows is not None:
            left = rows_of(part) - done
            if left > rows:
                if rows:
                    marks[part.writer] = Mark(part.number, done + rows, mark.parts)
                break
            rows -= left
        marks[part.writer] = Mark(part.number + 1, 0, mark.parts + 1)
        size_bytes += part.size_bytes
    return marks


def between(start: Offset, end: Offset, parts: Iterable[Part]) -> list[Rows]:
    """The rows of a batch.

    Raises:
        UserError: parts of it are gone, or there are some that nobody should have published.
    """
    by_writer: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.number):
        by_writer.setdefault(part.writer, []).append(part)
    found: list[Rows] = []
    for writer, to in sorted(end.items()):
        found += _of_writer(writer, start.get(writer, BEGIN), to, by_writer.get(writer, []))
    return found


def _of_writer(writer: str, at: Mark, to: Mark, parts: Sequence[Part]) -> list[Rows]:
    whole = [part for part in parts if at.part <= part.number < to.part]
    last = [part for part in parts if part.number == to.part] if to.row else []
    wanted = to.parts - at.parts
    begun = [*whole, *last][:1]
    gone = len(whole) < wanted or (to.row > 0 and not last)
    if gone or (at.row and (begun and begun[0].number != at.part)):
        raise UserError(
            f"parts of writer {writer} from number {at.part} to {to.part} are gone, which the "
            "batch had when it was planned: put them back, or begin with a new checkpoint"
        )
    if len(whole) > wanted:
        raise UserError(
            f"writer {writer} has {len(whole)} parts from number {at.part} to {to.part} where "
            f"{wanted} were published: somebody has put files there"
        )
    found = [Rows(part.path, at.row if part.number == at.part else 0) for part in whole]
    first = at.row if to.part == at.part else 0
    found += [Rows(part.path, first, to.row) for part in last if first < to.row]
    return found


def unread(start: Offset, parts: Iterable[Part]) -> list[Part]:
    """Unread parts: the first one of each writer, then their second ones, and so on, so that a
    limit starves no writer."""
    turns: dict[str, int] = {}
    found: list[tuple[int, str, Part]] = []
    for part in sorted(parts, key=lambda part: part.number):
        if part.number >= start.get(part.writer, BEGIN).part:
            turn = turns[part.writer] = turns.get(part.writer, 0) + 1
            found.append((turn, part.writer, part))
    return [part for _, _, part in sorted(found, key=lambda each: each[:2])]


def not_asked(part: Part) -> int:
    raise AssertionError(f"without a limit nobody counts the rows of {part.path}")
