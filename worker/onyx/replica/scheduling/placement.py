"""From counts to places: which peer sits on which task.

An assignment problem: staying costs nothing, moving costs something, a peer without the tags of a
task cannot sit there. As many peers of each task stay as the counts allow; only the open seats are
then filled. That cannot be beaten in moves, so the whole problem is given to the solver only if the
open seats cannot be filled like that (a peer with rare tags sits where anybody could).

The solver is SciPy's (Jonker-Volgenant), not a search of our own. Rows and columns are in an order
that depends on the log alone, so every peer of the cluster computes the same places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from immutables import Map

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.scheduling.demand import has_tags
from onyx.replica.state import Replica

Seat = tuple[JobId, TaskName]
Plan = Mapping[JobId, Mapping[TaskName, int]]
Costs = np.ndarray[tuple[int], np.dtype[np.float64]]
Places = dict[Seat, tuple[PeerId, ...]]

_MOVE = 1_000.0
_FORBIDDEN = 1e9
_TAGS_COUNTED_MAX = 99
"""A seat for anybody prefers a peer with few tags: those with many may be needed elsewhere."""


def place(replica: Replica, plan: Plan) -> Places | None:
    """Peers of each task with a count, in the order stayers, newcomers; None: no solution."""
    seats = [(job, task) for job in plan for task in plan[job] if plan[job][task]]
    before = {seat: _present(replica, seat) for seat in seats}
    stay = {seat: before[seat][: plan[seat[0]][seat[1]]] for seat in seats}
    placed = _fill(replica, plan, stay)
    if placed is None:
        placed = _fill(replica, plan, {seat: _pinned(replica, seat, stay) for seat in seats})
    return placed


def _fill(replica: Replica, plan: Plan, stay: Mapping[Seat, tuple[PeerId, ...]]) -> Places | None:
    """Fill the seats that `stay` leaves open with the peers that it leaves free."""
    taken = {peer for peers in stay.values() for peer in peers}
    free = [peer for peer in replica.peers if peer not in taken]
    open_ = [
        seat for seat, peers in stay.items() for _ in range(plan[seat[0]][seat[1]] - len(peers))
    ]
    if len(open_) > len(free):
        return None
    chosen = _choose(replica, open_, free)
    if chosen is None:
        return None
    added: dict[Seat, list[PeerId]] = {seat: [] for seat in stay}
    for seat, peer in zip(open_, chosen, strict=True):
        added[seat].append(peer)
    return {seat: _in_order(replica, seat, (*stay[seat], *added[seat])) for seat in stay}


def _choose(
    replica: Replica, open_: Sequence[Seat], free: Sequence[PeerId]
) -> Sequence[PeerId] | None:
    """A peer for each open seat, with fewest moves."""
    if not open_:
        return ()
    seats = sorted(set(open_))
    before = {peer: seat for seat in seats for peer in _present(replica, seat)}
    somebody_may_stay = any(peer in before for peer in free)
    if not somebody_may_stay and not _any_tags(replica, seats):
        return sorted(free, key=lambda peer: len(replica.peer_tags.get(peer, ())))[: len(open_)]
    # Imported here: it takes longer than all the rest of a worker, and most clusters need no tags.
    from scipy.optimize import linear_sum_assignment

    kinds = sorted({replica.peer_tags.get(peer, ()) for peer in free})
    kind_of = np.array([kinds.index(replica.peer_tags.get(peer, ())) for peer in free])
    rows = {seat: _costs(replica, seat, kinds)[kind_of] for seat in seats}
    for column, peer in enumerate(free):
        if peer in before:
            rows[before[peer]][column] = 0.0
    costs = np.stack([rows[seat] for seat in open_])
    chosen_rows, columns = linear_sum_assignment(costs)
    if costs[chosen_rows, columns].max() >= _FORBIDDEN:
        return None
    return [free[column] for column in columns]


def _costs(replica: Replica, seat: Seat, kinds: Sequence[tuple[str, ...]]) -> Costs:
    """What it costs to move a peer with each set of tags to a task."""
    required = replica.required_tags.get(seat[0], Map()).get(seat[1], ())
    return np.array(
        [
            _MOVE + min(len(tags) - len(required), _TAGS_COUNTED_MAX)
            if has_tags(tags, required)
            else _FORBIDDEN
            for tags in kinds
        ]
    )


def _any_tags(replica: Replica, seats: Sequence[Seat]) -> bool:
    return any(replica.required_tags.get(job, Map()).get(task) for job, task in seats)


def _pinned(
    replica: Replica, seat: Seat, stay: Mapping[Seat, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """Those who may not move even if it would help: peers of grouped tasks with state to lose."""
    policy = replica.flux_policies.get(seat[0], Map()).get(seat[1])
    return stay[seat] if policy in ("kill", "recover") else ()


def _present(replica: Replica, seat: Seat) -> tuple[PeerId, ...]:
    return replica.allocations.get(seat[0], Map()).get(seat[1], ())


def _in_order(replica: Replica, seat: Seat, peers: Sequence[PeerId]) -> tuple[PeerId, ...]:
    """Stayers as they were, then newcomers."""
    present = _present(replica, seat)
    chosen = set(peers)
    stayers = tuple(peer for peer in present if peer in chosen)
    return stayers + tuple(peer for peer in peers if peer not in present)
