"""Which peer sits where: staying costs nothing, moving costs one, tags forbid.

Where no task requires tags the answer is direct: the first peers of a task stay, as many as are
planned, and the free ones fill the gaps in order of joining. With tags it is an assignment problem,
which SciPy solves; the matrix is built in a fixed order, so every replica finds the same answer. A
constraint solver as in the original takes seconds for the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.scheduling.bounds import satisfies
from onyx.replica.scheduling.tasks import TaskCounts
from onyx.replica.state import NOTHING, Replica

Plan = Mapping[JobId, TaskCounts]
Place = tuple[JobId, TaskName]
Placement = dict[Place, list[PeerId]]

_STAY, _MOVE, _FORBIDDEN = 0.0, 1.0, 1e9


def place(replica: Replica, plan: Plan) -> Placement | None:
    """Peers for every task of the plan; None when the tags do not allow it."""
    kept = _keep(replica, plan)
    if any(replica.required_tags.get(job) for job in plan):
        return _assign(replica, plan, kept)
    return _fill(replica, plan, kept)


def _keep(replica: Replica, plan: Plan) -> Placement:
    """The first peers of each task stay there, as many as are planned."""
    return {
        (job, task): list(replica.allocations.get(job, NOTHING).get(task, ())[:count])
        for job, counts in plan.items()
        for task, count in counts.items()
    }


def _fill(replica: Replica, plan: Plan, kept: Placement) -> Placement | None:
    taken = {peer for peers in kept.values() for peer in peers}
    free = iter([peer for peer in replica.peers if peer not in taken])
    for (job, task), peers in kept.items():
        while len(peers) < plan[job][task]:
            peer = next(free, None)
            if peer is None:
                return None
            peers.append(peer)
    return kept


def _assign(replica: Replica, plan: Plan, kept: Placement) -> Placement | None:
    seats = [place for place in kept for _ in range(plan[place[0]][place[1]])]
    if len(seats) > len(replica.peers):
        return None
    if not seats:
        return kept
    costs = _costs(replica, seats, kept)
    rows, columns = linear_sum_assignment(costs)
    if costs[rows, columns].max(initial=0.0) >= _FORBIDDEN:
        return None
    placed: Placement = {place: [] for place in kept}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        placed[seats[row]].append(replica.peers[column])
    return {place: _stable(kept[place], peers) for place, peers in placed.items()}


def _costs(replica: Replica, seats: list[Place], kept: Placement) -> np.ndarray:
    costs = np.full((len(seats), len(replica.peers)), _MOVE)
    at = {peer: place for place, peers in kept.items() for peer in peers}
    index = {peer: column for column, peer in enumerate(replica.peers)}
    rows: dict[Place, list[int]] = {}
    for row, place in enumerate(seats):
        rows.setdefault(place, []).append(row)
    for peer, place in at.items():
        costs[rows[place], index[peer]] = _STAY
    for (job, task), mine in rows.items():
        required = tuple(replica.required_tags.get(job, NOTHING).get(task) or ())
        if required:
            refused = [
                column
                for column, peer in enumerate(replica.peers)
                if not satisfies(replica, peer, required)
            ]
            costs[np.ix_(mine, refused)] = _FORBIDDEN
    return costs


def _stable(before: list[PeerId], after: list[PeerId]) -> list[PeerId]:
    """Those that stay first, in their order."""
    there = set(after)
    staying = [peer for peer in before if peer in there]
    return staying + [peer for peer in after if peer not in set(staying)]
