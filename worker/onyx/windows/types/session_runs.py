"""Runs: rows of a batch of columns that end up in one session, and which sessions they meet, found
for all owners at once.

Sorted by owner and coordinate, rows begin a run where the next one is further away than the gap.
What then happens to a session, it gets from few rows: from the first of the run, which joins it or
begins it, and from those that are below all before them, because they change when it is due. The
others only move its upper end.

That holds if each row is near those of its run that came before. An owner of whom that is not so
has sessions that merge within the batch, and floats that were added apart: its rows go one by one
(`merging`).

Runs of an owner are further from each other than the gap, and so are its sessions: together in the
order of their coordinates, those that are not further from all before than the gap become one
(`meetings`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from onyx.flow.batch import Indices, Mask
from onyx.flow.groups.codes import compact
from onyx.keystate.coded import Groups, Keyed
from onyx.windows.arrays.session_rows import SessionBounds
from onyx.windows.assigning.assigner import Axis

Owner = tuple[Any, Any]
"""A group and a session key."""
Ints = NDArray[np.int64]
COORDINATE_MAX = 2**60
"""Beyond it the arithmetic of 64 bits could overflow."""


_SUM_MAX = 2**62
NONE = -1


class Runs(msgspec.Struct, frozen=True):
    """The runs of a batch, in order of their first rows."""

    groups: Groups
    keys: Keyed | None
    coordinates: Ints
    """The coordinates of each row."""
    run_of: Indices
    """The run of each row."""
    owner_of: Indices
    """The owner of each run, as the index in `owners`."""
    firsts: Indices
    """The first row of each run."""
    lows: Ints
    highs: Ints
    merging: Indices
    """Owners of whom a row is not near those of its run that came before."""
    turning: Mask
    """Rows that are the first of their run, or below all before."""
    uppers: Ints
    """For each of these rows the greatest coordinate of the run until then."""

    @staticmethod
    def of(coordinates: Axis | None, groups: Groups, keys: Keyed | None, gap: int) -> Runs | None:
        """The runs of a batch.

        Args:
            keys: the session key of each row, if the window has one.

        Returns:
            None if arrays cannot do it: coordinates are fractions, or too far out.
        """
        if (
            not isinstance(coordinates, np.ndarray)
            or coordinates.dtype != np.int64
            or not len(coordinates)
        ):
            return None
        coordinates = coordinates.astype(np.int64, copy=False)
        if max(-int(coordinates.min()), int(coordinates.max()), gap) > COORDINATE_MAX:
            return None
        codes = _owner_codes(groups, keys)
        order = np.lexsort((coordinates, codes))
        ordered, by_coordinate = codes[order], coordinates[order]
        begins = np.empty(len(order), np.bool_)
        begins[0] = True
        begins[1:] = (np.diff(ordered) != 0) | (np.diff(by_coordinate) > gap)
        starts = np.flatnonzero(begins)
        numbers = np.empty(len(order), np.intp)
        numbers[order] = np.cumsum(begins) - 1
        run_of, olds, firsts = compact(numbers, len(starts))
        ends = np.append(starts[1:], len(order)) - 1
        lows, highs = by_coordinate[starts][olds], by_coordinate[ends][olds]
        if (int((highs - lows).max()) + 1) * len(starts) > COORDINATE_MAX:
            return None
        near, turning, uppers = _course(coordinates - lows[run_of], run_of, gap)
        return Runs(
            groups,
            keys,
            coordinates,
            run_of,
            codes[firsts],
            firsts,
            lows,
            highs,
            codes[~near],
            turning,
            uppers + lows[run_of],
        )

    def owners(self) -> list[Owner]:
        """The owners, as Python has them."""
        if self.keys is None:
            return [(group, None) for group in self.groups.keys]
        assert isinstance(self.keys, Groups), "of columns"
        _, olds, _ = _pair_codes(self.groups, self.keys)
        pairs = [divmod(old, len(self.keys.keys)) for old in olds.tolist()]
        return [(self.groups.keys[group], self.keys.keys[key]) for group, key in pairs]

    def events(self, alone: Collection[int]) -> Iterator[tuple[int, int, int]]:
        """In order of arrival the rows that take a step, each with its run and the greatest
        coordinate until then: those that turn, and all rows of some owners."""
        chosen = self.turning
        if alone:
            is_alone = np.isin(self.owner_of, np.fromiter(alone, np.intp, len(alone)))
            chosen = chosen | is_alone[self.run_of]
        rows = np.flatnonzero(chosen)
        yield from zip(
            rows.tolist(), self.run_of[rows].tolist(), self.uppers[rows].tolist(), strict=True
        )

    def rows_in(self, runs: Indices) -> tuple[Indices | None, Indices]:
        """The rows of some runs (None: all rows), and for each the index of its run in these."""
        if len(runs) == len(self.owner_of):
            return None, self.run_of
        index = np.full(len(self.owner_of), -1)
        index[runs] = np.arange(len(runs))
        codes = index[self.run_of]
        where = np.flatnonzero(codes >= 0)
        return where, codes[where]

    def rows_of(self, runs: Collection[int]) -> Indices | None:
        """The rows of some runs; None: all rows."""
        if len(runs) == len(self.owner_of):
            return None
        wanted = np.zeros(len(self.owner_of), np.bool_)
        wanted[list(runs)] = True
        return np.flatnonzero(wanted[self.run_of])


def _owner_codes(groups: Groups, keys: Keyed | None) -> Indices:
    """For each row its owner, in order of their first rows."""
    if keys is None:
        return groups.codes
    assert isinstance(keys, Groups), "of columns"
    return _pair_codes(groups, keys)[0]


def _pair_codes(groups: Groups, keys: Groups) -> tuple[Indices, Indices, Indices]:
    size = len(keys.keys)
    return compact(groups.codes * size + keys.codes, len(groups.keys) * size)


def _course(coordinates: Ints, run_of: Indices, gap: int) -> tuple[Mask, Mask, Ints]:
    """Row by row in order of arrival: whether it is near those of its run before, whether it is the
    first of them or below all, and the greatest until then.

    Args:
        coordinates: above the lowest of the run. A run after the other is lifted over all before it
            (or put below), so that extremes begin anew with each.
    """
    order = np.argsort(run_of, kind="stable")
    runs, ordered = run_of[order], coordinates[order]
    apart = runs * (int(coordinates.max()) + 1)
    most = np.maximum.accumulate(ordered + apart) - apart
    least = np.minimum.accumulate(ordered - apart) + apart
    first = np.empty(len(order), np.bool_)
    first[0], first[1:] = True, np.diff(runs) != 0
    before, below = np.roll(most, 1), np.roll(least, 1)
    near, turning = np.empty(len(order), np.bool_), np.empty(len(order), np.bool_)
    near[order] = first | ((ordered <= before + gap) & (ordered >= below - gap))
    turning[order] = first | (ordered < below)
    uppers = np.empty_like(coordinates)
    uppers[order] = np.where(first, ordered, before)
    return near, turning, uppers


class Meetings(msgspec.Struct, frozen=True):
    """Runs, with the sessions that they meet."""

    runs: Runs
    chosen: Indices
    """The runs that are looked at."""
    met: Indices
    """For each of them the first session that it joins, or NONE: it begins one."""
    others: Indices
    """Sessions that become one with another, which a run joins."""
    joined_by: Indices
    """The run that each of these is joined by, as the index in `chosen`, in order."""

    def without(self, owners: Mask, rows: Indices) -> Meetings:
        """Without the runs of some owners, and with the rows of sessions in place of indices."""
        stay = ~owners[self.runs.owner_of]
        index = np.full(len(stay), NONE)
        index[stay] = np.arange(np.count_nonzero(stay))
        joined_by = index[self.joined_by]
        order = np.argsort(joined_by, kind="stable")
        order = order[joined_by[order] != NONE]
        met = self.met[stay]
        joins = met != NONE
        met[joins] = rows[met[joins]]
        others = rows[self.others[order]]
        return Meetings(self.runs, np.flatnonzero(stay), met, others, joined_by[order])


def meetings(
    runs: Runs, bounds: SessionBounds, whose: Indices, gap: int, coordinate_max: int
) -> tuple[Meetings, Indices] | None:
    """What runs meet, with one run in place of all that become one session.

    Args:
        bounds: of the sessions of all owners, in order of owners and coordinates.
        whose: their owners.

    Returns:
        The meetings, and owners of whom several runs or sessions become one, or a run does not
        begin near the session that it is near to. None: arrays cannot do it, as coordinates are too
        far out or too far apart.
    """
    lows, highs = np.append(runs.lows, bounds.lowers), np.append(runs.highs, bounds.uppers)
    owners = np.append(runs.owner_of, whose)
    first, last = int(lows.min()), int(highs.max())
    apart = last - first + gap + 1  # from owner to owner
    if max(-first, last) > coordinate_max or apart * (int(owners.max()) + 1) > _SUM_MAX:
        return None
    lifted = owners * apart - first
    order = np.argsort(lows + lifted, kind="stable")
    reached = np.maximum.accumulate((highs + lifted)[order])
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (lows + lifted)[order][1:] > reached[:-1] + gap
    meeting = np.empty(len(order), np.intp)
    meeting[order] = np.cumsum(begins) - 1
    many, size = len(runs.lows), int(begins.sum())
    of_runs, of_sessions = meeting[:many], meeting[many:]
    several = np.bincount(of_runs, minlength=size) + np.bincount(of_sessions, minlength=size) > 2
    several |= np.bincount(of_runs, minlength=size) > 1
    session = np.full(size, NONE)
    session[of_sessions[::-1]] = np.arange(len(of_sessions))[::-1]  # the first one stays
    merging = several[of_runs] | ~_begin_near(runs, bounds, session[of_runs], gap)
    codes, olds, firsts = compact(of_runs, size)
    least, most = np.full(size, lows.max()), np.full(size, highs.min())
    np.minimum.at(least, meeting, lows)
    np.maximum.at(most, meeting, highs)
    united = replace(
        runs, run_of=codes[runs.run_of], owner_of=runs.owner_of[firsts],
        firsts=runs.firsts[firsts], lows=least[olds], highs=most[olds],
    )  # fmt: skip
    run = np.full(size, NONE)
    run[olds] = np.arange(len(olds))
    others = np.flatnonzero(session[of_sessions] != np.arange(len(whose)))
    others = others[run[of_sessions[others]] != NONE]
    joined_by = run[of_sessions[others]]
    found = Meetings(united, np.arange(len(olds)), session[olds], others, joined_by)
    return found, runs.owner_of[merging]


def _begin_near(runs: Runs, bounds: SessionBounds, met: Indices, gap: int) -> Mask:
    """Whether the first segment of each run is near the session that the run meets, if it does."""
    near = np.ones(len(met), np.bool_)
    joins = np.flatnonzero(met != NONE)
    begin, joined = runs.coordinates[runs.firsts[joins]], met[joins]
    near[joins] = begin >= bounds.lowers[joined] - gap
    near[joins] &= begin <= bounds.uppers[joined] + gap
    return near
