"""From counts to places: which peer sits on which task.

An assignment problem: staying costs nothing, moving costs something, a peer without the tags of a
task cannot sit there. As many peers of each task stay as the counts allow; only the open seats are
then filled, process by process (`dealing`). That cannot be beaten in moves, so the whole problem is
given to the solver only if the open seats cannot be filled like that (a peer with rare tags sits
where anybody could). Colocated jobs come first, process by process: they can use fewer peers than
the others can.

Rows and columns of that problem are in an order that depends on the log alone, so every peer of the
cluster computes the same places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.replica.scheduling.colocation import PINNING, Batches
from onyx.replica.scheduling.dealing import Seat, by_group, deal, group_of
from onyx.replica.scheduling.demand import has_tags
from onyx.replica.state import Replica

Places = dict[Seat, tuple[PeerId, ...]]


class SeatPlan(msgspec.Struct, frozen=True):
    """How many sit where."""

    counts: Mapping[JobId, Mapping[TaskName, int]]
    batches: Mapping[JobId, Batches]
    """The batches of colocated jobs, by process."""
    pools: Mapping[JobId, Sequence[PeerId]]
    """The pools of colocated jobs: the peers in their processes that they may use."""


_MOVE = 1_000.0
_FORBIDDEN = 1e9
_TAGS_COUNTED_MAX = 99
"""A seat for anybody prefers a peer with few tags: those with many may be needed elsewhere."""


def place(replica: Replica, plan: SeatPlan) -> Places | None:
    """Peers of each task with a count, in the order stayers, newcomers; None: no solution."""
    together = _colocate(replica, plan)
    if together is None:
        return None
    counts = {
        (job, task): count
        for job, tasks in plan.counts.items()
        for task, count in tasks.items()
        if count and job not in plan.batches
    }
    taken = frozenset(peer for peers in together.values() for peer in peers)
    stay = {seat: _staying(replica, seat, taken, count) for seat, count in counts.items()}
    placed = _fill(replica, counts, stay, taken)
    if placed is None:
        pinned = {seat: _pinned(replica, seat, stay) for seat in counts}
        placed = _fill(replica, counts, pinned, taken)
    return None if placed is None else {**together, **placed}


def _colocate(replica: Replica, plan: SeatPlan) -> Places | None:
    """The peers of colocated jobs, process by process; those without a task before others."""
    if not plan.batches:
        return {}
    busy = frozenset(
        peer
        for job in replica.jobs
        for peers in replica.run(job).allocation.values()
        for peer in peers
    )
    found: dict[Seat, list[PeerId]] = {}
    taken: set[PeerId] = set()
    for job, batches in plan.batches.items():
        pool = by_group(replica, (peer for peer in plan.pools[job] if peer not in taken))
        for group, number in batches.items():
            mine = pool[group]
            counts = {(job, task): number for task in plan.counts[job]}
            stay = {
                seat: tuple(p for p in _present(replica, seat) if p in mine)[:number]
                for seat in counts
            }
            outside = frozenset(replica.peers).difference(mine)
            order = sorted(mine, key=busy.__contains__)
            placed = _fill(replica, counts, stay, outside, order)
            if placed is None:
                return None
            for seat, peers in placed.items():
                found.setdefault(seat, []).extend(peers)
                taken.update(peers)
    return {seat: _in_order(replica, seat, peers) for seat, peers in found.items()}


def _staying(
    replica: Replica, seat: Seat, taken: frozenset[PeerId], count: int
) -> tuple[PeerId, ...]:
    """Peers that keep the seat, so many: the first of each process before its second, so that what
    is left of the tasks of a job is in the same processes."""
    here = [peer for peer in _present(replica, seat) if peer not in taken]
    if len(here) <= count:
        return tuple(here)
    order = {group: number for number, group in enumerate(replica.groups)}
    ranks = Counter[GroupId]()
    keys: dict[PeerId, tuple[int, int]] = {}
    for peer in here:
        group = group_of(replica, peer)
        keys[peer] = ranks[group], order.get(group, len(order))
        ranks[group] += 1
    return tuple(sorted(here, key=keys.__getitem__)[:count])


def _fill(
    replica: Replica,
    counts: Mapping[Seat, int],
    stay: Mapping[Seat, tuple[PeerId, ...]],
    others: frozenset[PeerId],
    order: Sequence[PeerId] | None = None,
) -> Places | None:
    """Fill the seats that `stay` leaves open with the peers that it and `others` leave free."""
    taken = others.union(*stay.values()) if stay else others
    free = [peer for peer in (replica.peers if order is None else order) if peer not in taken]
    open_ = {seat: more for seat in stay if (more := counts[seat] - len(stay[seat]))}
    if sum(open_.values()) > len(free):
        return None
    found = _choose(replica, stay, open_, free)
    if found is None:
        return None
    assert all(len(found[each]) >= counts[each] for each in stay), "no open seat"
    return {seat: _in_order(replica, seat, peers) for seat, peers in found.items()}


def _choose(
    replica: Replica,
    stay: Mapping[Seat, tuple[PeerId, ...]],
    open_: Mapping[Seat, int],
    free: Sequence[PeerId],
) -> Mapping[Seat, Sequence[PeerId]] | None:
    """Who has each seat when the open ones are filled, with fewest moves."""
    if not open_:
        return stay
    seats = sorted(open_)
    before = {peer: seat for seat in seats for peer in _present(replica, seat)}
    kinds = sorted({replica.peer_tags.get(peer, ()) for peer in free}, key=lambda t: (len(t), t))
    alike = {kind: [p for p in free if replica.peer_tags.get(p, ()) == kind] for kind in kinds}
    somebody_may_stay = any(peer in before for peer in free)
    if not somebody_may_stay and not _any_tags(replica, seats):
        left = dict(open_)
        return _dealt(replica, stay, [(left, alike[kind]) for kind in kinds])
    # NumPy takes long to import, and most clusters never need it here.
    from onyx.replica.scheduling.assignment import cheapest

    rows = [seat for seat, count in open_.items() for _ in range(count)]
    columns = cheapest(
        [_costs(replica, seat, kinds) for seat in seats],
        [kinds.index(replica.peer_tags.get(peer, ())) for peer in free],
        {column: seats.index(before[peer]) for column, peer in enumerate(free) if peer in before},
        [seats.index(seat) for seat in rows],
        _FORBIDDEN,
    )
    if columns is None:
        return None
    # Who stays is settled; peers with the same tags may change places with each other.
    chosen = [(seat, free[column]) for seat, column in zip(rows, columns, strict=True)]
    settled = {seat: [*peers] for seat, peers in stay.items()}
    wanted = {kind: Counter[Seat]() for kind in kinds}
    for seat, peer in chosen:
        if peer in before:
            settled[seat].append(peer)
        else:
            wanted[replica.peer_tags.get(peer, ())][seat] += 1
    others = {kind: [p for p in alike[kind] if p not in before] for kind in kinds}
    return _dealt(replica, settled, [(wanted[kind], others[kind]) for kind in kinds])


def _dealt(
    replica: Replica,
    seated: Mapping[Seat, Sequence[PeerId]],
    parts: Iterable[tuple[dict[Seat, int], Sequence[PeerId]]],
) -> dict[Seat, list[PeerId]]:
    """Who has each seat when open ones are filled, part by part: with these peers as far as there
    are any. What they leave open is less by those."""
    found = {seat: [*peers] for seat, peers in seated.items()}
    for open_, peers in parts:
        for seat, its in deal(replica, found, open_, peers).items():
            found[seat] += its
            open_[seat] -= len(its)
    return found


def _costs(replica: Replica, seat: Seat, kinds: Sequence[tuple[str, ...]]) -> list[float]:
    """What it costs to move a peer with each set of tags to a task."""
    required = replica.spec(seat[0]).by_name[seat[1]].required_tags
    return [
        _MOVE + min(len(tags) - len(required), _TAGS_COUNTED_MAX)
        if has_tags(tags, required)
        else _FORBIDDEN
        for tags in kinds
    ]


def _any_tags(replica: Replica, seats: Sequence[Seat]) -> bool:
    return any(replica.spec(job).by_name[task].required_tags for job, task in seats)


def _pinned(
    replica: Replica, seat: Seat, stay: Mapping[Seat, tuple[PeerId, ...]]
) -> tuple[PeerId, ...]:
    """The peers who may not move even if it would help: peers of grouped tasks with state to
    lose."""
    policy = replica.spec(seat[0]).by_name[seat[1]].flux_policy
    return stay[seat] if policy in PINNING else ()


def _present(replica: Replica, seat: Seat) -> tuple[PeerId, ...]:
    return replica.run(seat[0]).allocation.get(seat[1], ())


def _in_order(replica: Replica, seat: Seat, peers: Sequence[PeerId]) -> tuple[PeerId, ...]:
    """Stayers as they were, then newcomers."""
    present = _present(replica, seat)
    chosen = set(peers)
    stayers = tuple(peer for peer in present if peer in chosen)
    return stayers + tuple(peer for peer in peers if peer not in present)
