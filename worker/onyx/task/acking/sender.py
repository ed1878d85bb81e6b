"""Sending acks: what a task has consumed and produced, folded per root, to the ackers.

Folding by XOR keeps this bounded by the roots in flight, whatever the acker's speed. Acks leave
when many have gathered, after `ack_interval_s`, or as soon as a flush has come: only then the input
may be held up by them. If all ackers and inputs are in this process they leave whenever the task is
idle. Otherwise the completions that follow would cost a message between processes.
"""

from __future__ import annotations

from onyx.base.runs import Numbers, Run, follow, joined
from onyx.base.seams import Clock
from onyx.ledger.acker import acker_of_root, split_by_acker
from onyx.ledger.lineage import fold
from onyx.ledger.returns import Parts, Trees, add_tree
from onyx.task.channels.wiring import Site, Wiring
from onyx.transport.interface import Transport

GATHERED_SEGMENTS_MAX = 8_192


class AckSender:
    """The acks of one task in one allocation version."""

    def __init__(
        self, transport: Transport, wiring: Wiring, clock: Clock, interval_s: float
    ) -> None:
        self._transport = transport
        self._wiring = wiring
        self._clock = clock
        self._interval_s = interval_s
        self._parcels: list[tuple[Numbers, Numbers]] = []
        self._gathered = 0
        self._due_s = 0.0
        self._hurried = False
        self._refused: list[tuple[Site, Numbers, Numbers]] = []
        self._returns: Trees = {}
        """What functions give back for trees. It is sent before their acks, so the acker has it
        when a tree is complete."""
        here = {wiring.me.group}
        self._acks_here = {site.group for site in wiring.ackers} == here
        owners = {site.group for _, sites in wiring.sources for site in sites}
        self._completes_here = self._acks_here and owners == here

    def add(self, roots: Numbers, values: Numbers) -> None:
        """XOR `values[i]` into the tree `roots[i]`."""
        if not len(roots):
            return
        if not self._gathered:
            self._due_s = self._clock.monotonic_s() + self._interval_s
        self._parcels.append((roots, values))
        self._gathered += len(roots)

    def give_back(self, root: int, parts: Parts) -> None:
        """A function gives something back for the tree `root`, before that is acked."""
        add_tree(self._returns, root, parts)

    def waiting_roots(self) -> list[Numbers]:
        """The roots of what is not sent; from any thread."""
        refused = [roots for _, roots, _ in tuple(self._refused)]
        return [roots for roots, _ in tuple(self._parcels)] + refused

    @property
    def gathers(self) -> bool:
        """Whether something waits, for its time or for room."""
        return self._gathered > 0 or bool(self._refused)

    def hurry(self) -> None:
        """An input waits for what is acked next."""
        self._hurried = True

    def tend(self, idle: bool) -> bool:
        """Send what is due; True when something was sent."""
        if self._refused and not self._send(self._refused):
            return False
        if not self._gathered or not self._due(idle) or not self._send_returns():
            return False
        self._send(self._split())
        return True

    def _send_returns(self) -> bool:
        """False if an acker does not take them now."""
        wiring, ackers = self._wiring, self._wiring.ackers
        for index, site in enumerate(ackers if self._returns else ()):
            mine = [root for root in self._returns if acker_of_root(root, len(ackers)) == index]
            trees = {root: self._returns[root] for root in mine}
            if not trees:
                continue
            if not self._transport.send_returns(
                site.group, wiring.job, wiring.version, site.peer, trees, to_acker=True
            ):
                return False
            for root in mine:
                del self._returns[root]
        return True

    def _due(self, idle: bool) -> bool:
        if self._hurried or self._gathered >= GATHERED_SEGMENTS_MAX:
            return True
        return (idle and self._completes_here) or self._clock.monotonic_s() >= self._due_s

    def _split(self) -> list[tuple[Site, Numbers, Numbers]]:
        """Parcels by acker. For the only acker in the same process nothing is folded: it does that
        itself, and there is no wire on which it would save anything."""
        parcels = _joined(self._parcels)
        self._parcels, self._gathered = [], 0
        ackers = self._wiring.ackers
        if self._acks_here and len(ackers) == 1:
            return [(ackers[0], roots, values) for roots, values in parcels]
        return [
            (ackers[index], roots, values)
            for parcel in parcels
            for index, roots, values in split_by_acker(*fold(*parcel), len(ackers))
        ]

    def _send(self, parcels: list[tuple[Site, Numbers, Numbers]]) -> bool:
        wiring = self._wiring
        self._refused = [
            (site, roots, values)
            for site, roots, values in parcels
            if not self._transport.send_acks(
                site.group, wiring.job, wiring.version, site.peer, roots, values, self._hurried
            )
        ]
        self._hurried &= bool(self._refused)
        return not self._refused


def _joined(parcels: list[tuple[Numbers, Numbers]]) -> list[tuple[Numbers, Numbers]]:
    """Runs that follow one another as one, and all others as one. Batches of several partitions
    come in turn, each in order: put in the order of their first roots they mostly make one column
    that need not be sorted."""
    if len(parcels) == 1:
        return parcels
    parcels.sort(key=_first_root)
    found: list[tuple[Numbers, Numbers]] = []
    others: list[tuple[Numbers, Numbers]] = []
    for roots, values in parcels:
        if not (isinstance(roots, Run) and isinstance(values, Run)):
            others.append((roots, values))
        elif found and follow((found[-1][0], roots)) and follow((found[-1][1], values)):
            before_roots, before_values = found[-1]
            found[-1] = joined((before_roots, roots)), joined((before_values, values))
        else:
            found.append((roots, values))
    if others:
        roots_of_others, values_of_others = zip(*others, strict=True)
        found.append((joined(roots_of_others), joined(values_of_others)))
    return found


def _first_root(parcel: tuple[Numbers, Numbers]) -> int:
    return int(parcel[0][0])
