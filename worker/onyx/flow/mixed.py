"""Segments of one read that are partly rows of columns and partly dicts.

A few records that no column holds (bad ones, those with other types) must not make dicts of all the
others, nor cut them into many small batches: either costs more than the work. So such a read is
kept as pieces, each with the indices of its segments, and whoever reads makes one batch of each
piece. Positions stay those of the source; only the order within one read changes.

Rejected: columns for what bad records have (`_error`, `_raw`) beside the others, null in all good
rows. They would stay in every good segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from onyx.flow.batch import Indices, Segments, format_of, joined, part_of, take

Piece = tuple[Indices, Segments]
"""Segments of one form, with their indices, which rise."""


class Mixed(msgspec.Struct, frozen=True):
    """Pieces whose indices are together 0 to before their number."""

    pieces: tuple[Piece, ...]

    def __len__(self) -> int:
        return sum(len(indices) for indices, _ in self.pieces)

    def take(self, chosen: Indices) -> Read:
        """The segments at these indices, which rise."""
        pieces = []
        for indices, segments in self.pieces:
            found = np.flatnonzero(np.isin(indices, chosen))
            pieces.append((np.searchsorted(chosen, indices[found]), take(segments, found)))
        return mixed(pieces)

    def runs(self) -> Iterator[Segments]:
        """All in order: segments of one form that follow each other."""
        owners = np.empty(len(self), np.intp)
        for number, (indices, _) in enumerate(self.pieces):
            owners[indices] = number
        starts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist()]
        taken = [0] * len(self.pieces)
        for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
            number = int(owners[start])
            first = taken[number]
            taken[number] += end - start
            yield part_of(self.pieces[number][1], first, taken[number])


Read = Segments | Mixed
"""What a reader gives at a time."""


def mixed(pieces: Sequence[Piece]) -> Read:
    """All pieces that have segments; the segments themselves if they have one form."""
    there = tuple(piece for piece in pieces if len(piece[0]))
    if len(there) > 1:
        return Mixed(there)
    return there[0][1] if there else pieces[0][1] if pieces else []


def pieces_of(read: Read) -> tuple[Piece, ...]:
    """Each form with its indices."""
    if isinstance(read, Mixed):
        return read.pieces
    return ((np.arange(len(read)), read),)


def runs_of(read: Read) -> Iterator[Segments]:
    """The runs of a read in order."""
    if isinstance(read, Mixed):
        yield from read.runs()
    else:
        yield read


def of_runs(runs: Sequence[Segments]) -> Read:
    """Runs that follow each other, those of one form together."""
    if len(runs) == 1:
        return runs[0]
    found: dict[object, tuple[list[Indices], list[Segments]]] = {}
    first = 0
    for run in runs:
        types = format_of(run).types(run)
        indices, segments = found.setdefault(types, ([], []))
        indices.append(np.arange(first, first + len(run)))
        segments.append(run)
        first += len(run)
    return mixed(
        [(np.concatenate(indices), joined(segments)) for indices, segments in found.values()]
    )


def part_of_read(read: Read, first: int, last: int) -> Read:
    """The segments from `first` to before `last`."""
    if isinstance(read, Mixed):
        return read.take(np.arange(first, min(last, len(read))))
    return part_of(read, first, last)


def take_of_read(read: Read, chosen: Indices) -> Read:
    """The segments at these indices, which rise."""
    return read.take(chosen) if isinstance(read, Mixed) else take(read, chosen)
