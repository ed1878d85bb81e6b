"""Which runs of a batch meet which sessions, for all groups at once.

Runs of an owner are further from each other than the gap, and so are its sessions: together in the
order of their coordinates, those that are not further from all before than the gap become one.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from onyx.flow.batch import Indices, Mask
from onyx.flow.groups.codes import compact
from onyx.windows.arrays.session_records import Bounds
from onyx.windows.types.session_runs import Runs

_SUM_MAX = 2**62
NONE = -1


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
    runs: Runs, bounds: Bounds, whose: Indices, gap: int, coordinate_max: int
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


def _begin_near(runs: Runs, bounds: Bounds, met: Indices, gap: int) -> Mask:
    """Whether the first segment of each run is near the session that the run meets, if it does."""
    near = np.ones(len(met), np.bool_)
    joins = np.flatnonzero(met != NONE)
    begin, joined = runs.coordinates[runs.firsts[joins]], met[joins]
    near[joins] = begin >= bounds.lowers[joined] - gap
    near[joins] &= begin <= bounds.uppers[joined] + gap
    return near
