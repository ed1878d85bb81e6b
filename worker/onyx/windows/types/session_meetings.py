"""Which runs of a batch meet which sessions, for all groups at once.

Runs of an owner are further from each other than the gap, and so are its sessions: together in the
order of their coordinates, those that are not further from all before than the gap end up in one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onyx.flow.batch import Indices
from onyx.windows.arrays.session_records import Bounds
from onyx.windows.types.session_runs import Runs

_SUM_MAX = 2**62


@dataclass(frozen=True, slots=True)
class Meetings:
    """What runs meet."""

    met: Indices
    """For each run the session that it joins, as the index among those given; -1: it begins one."""
    merging: Indices
    """Owners of whom several runs or sessions become one, or a run does not begin near the session
    that it is near to."""

    @staticmethod
    def of(
        runs: Runs, bounds: Bounds, whose: Indices, gap: int, coordinate_max: int
    ) -> Meetings | None:
        """
        Args:
            bounds: of the sessions of all owners.
            whose: their owners.

        Returns:
            None if arrays cannot do it: coordinates are too far out, or too far apart.
        """
        many = len(runs.lows)
        lowers = np.concatenate((runs.lows, bounds.lowers))
        uppers = np.concatenate((runs.highs, bounds.uppers))
        owners = np.concatenate((runs.owner_of, whose))
        first, last = int(lowers.min()), int(uppers.max())
        apart = last - first + gap + 1  # from owner to owner
        if max(-first, last) > coordinate_max or apart * (int(owners.max()) + 1) > _SUM_MAX:
            return None
        lifted = owners * apart - first
        lows, highs = lowers + lifted, uppers + lifted
        order = np.argsort(lows, kind="stable")
        reached = np.maximum.accumulate(highs[order])
        begins = np.ones(len(order), np.bool_)
        begins[1:] = lows[order][1:] > reached[:-1] + gap
        meeting = np.empty(len(order), np.intp)
        meeting[order] = np.cumsum(begins) - 1
        size = int(begins.sum())
        of_runs, of_sessions = meeting[:many], meeting[many:]
        session = np.full(size, -1)
        session[of_sessions] = np.arange(len(of_sessions))
        met = session[of_runs]
        several = np.bincount(of_runs, minlength=size)[of_runs] > 1
        several |= np.bincount(of_sessions, minlength=size)[of_runs] > 1
        joins = np.flatnonzero(met >= 0)
        begin = runs.coordinates[runs.firsts[joins]]
        near = (begin >= bounds.lowers[met[joins]] - gap) & (
            begin <= bounds.uppers[met[joins]] + gap
        )
        several[joins[~near]] = True
        return Meetings(met, runs.owner_of[several])
