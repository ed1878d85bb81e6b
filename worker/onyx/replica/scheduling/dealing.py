"""Which of the free peers sit on the open seats, where each of them may: process by process.

What crosses from one process to another is encoded and sent, which costs more than most functions
do. So a process is dealt *ways*: a peer of each task of a job, so that what its inputs read need
not leave it, but for groups. The ways of a job are spread over the processes, for then it has more
than one core and outlives each of them; those of different jobs go where more peers are free.

Within a process each task has the share that it has of the whole job, whatever sits there already.
Processes choose in turns, so that what does not divide evenly is spread as well. Rejected: peers in
the order in which they joined, which gives each process to one task; and moving peers that work:
ways that a loss has broken are made whole by those that come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.replica.state import Replica

Seat = tuple[JobId, TaskName]
Seated = Mapping[Seat, Sequence[PeerId]]


def group_of(replica: Replica, peer: PeerId) -> GroupId:
    """The process of a peer."""
    return replica.groups_reverse_index.get(peer, GroupId(""))


def by_group(replica: Replica, peers: Iterable[PeerId]) -> dict[GroupId, list[PeerId]]:
    """Peers of each process, in their order; processes in the order of their first peers."""
    found: dict[GroupId, list[PeerId]] = {}
    for peer in peers:
        found.setdefault(group_of(replica, peer), []).append(peer)
    return found


def deal(
    replica: Replica,
    seated: Seated,
    open_: Mapping[Seat, int],
    peers: Iterable[PeerId],
) -> dict[Seat, list[PeerId]]:
    """Peers for the open seats, as far as there are any; jobs choose in their order.

    Args:
        seated: who has a seat already, for each seat of these jobs.
        open_: how many more each of these seats gets, of these peers or others.
        peers: whoever is free; each may sit on any of the open seats.
    """
    free = by_group(replica, peers)
    dealt: dict[Seat, list[PeerId]] = {}
    for job in dict.fromkeys(job for job, _ in open_):
        mine = _Seating(replica, job, seated, open_)
        for seat, group in mine.seats(mine.sizes(free)):
            dealt.setdefault(seat, []).append(free[group].pop(0))
    return dealt


class _Seating:
    """The seats of one job, and in which processes they are."""

    def __init__(
        self, replica: Replica, job: JobId, seated: Seated, open_: Mapping[Seat, int]
    ) -> None:
        self._has = {
            seat: Counter(group_of(replica, peer) for peer in seated[seat])
            for seat in seated
            if seat[0] == job
        }
        self._open = {seat: open_.get(seat, 0) for seat in self._has}
        self._totals = {seat: self._has[seat].total() + self._open[seat] for seat in self._has}

    def sizes(self, free: Mapping[GroupId, Sequence[PeerId]]) -> dict[GroupId, int]:
        """How many peers each process gives: way by way, to whoever has the fewest and can make one
        whole."""
        size, left = len(self._has), sum(self._open.values())
        has = {group: sum(each[group] for each in self._has.values()) for group in free}
        room = {group: len(peers) for group, peers in free.items() if peers}
        found: Counter[GroupId] = Counter()

        def order(group: GroupId) -> tuple[bool, int, int]:
            ways, begun = divmod(has[group], size)
            return room[group] < size - begun, ways, -room[group]

        while left and room:
            group = min(room, key=order)
            more = min(left, room[group], size - has[group] % size)
            found[group] += more
            has[group] += more
            room[group] -= more
            left -= more
            if not room[group]:
                del room[group]
        return found

    def seats(self, sizes: Mapping[GroupId, int]) -> Iterator[tuple[Seat, GroupId]]:
        """The seats that the peers of each process get: in each turn the one that it lacks most."""
        has = {group: sum(each[group] for each in self._has.values()) for group in sizes}
        shares = {group: has[group] + count for group, count in sizes.items()}
        whole = sum(self._totals.values())
        for turn in range(max(sizes.values(), default=0)):
            for group in [each for each, count in sizes.items() if turn < count]:
                lacks = {
                    seat: self._totals[seat] * shares[group] - self._has[seat][group] * whole
                    for seat, count in self._open.items()
                    if count
                }
                seat = max(lacks, key=lacks.__getitem__)
                self._open[seat] -= 1
                self._has[seat][group] += 1
                yield seat, group
