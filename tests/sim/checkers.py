"""What must hold after every step. Names as in the table of invariants in tests/ROBUSTNESS.md.

The checker keeps a model: it folds every entry at the moment of its creation. Each process must
then arrive at the same replica at the same position (L1), by the same object or an equal one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.sim.tasks import Running
from tests.support.log import invariants
from tests.support.log.runs import by_job

from onyx.codec.entries import decode_entry
from onyx.ids import GroupId, PeerId, Position
from onyx.replica.command import Entry
from onyx.replica.commands import ReportLoss
from onyx.replica.state import Replica

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.process import Process


class Violation(AssertionError):
    """An invariant does not hold. The first word of the message is its name."""


def require(condition: bool, name: str, *what: Any) -> None:
    if not condition:
        raise Violation(f"{name}: {' '.join(map(str, what))}")


class Checkers:
    """Safety. One instance a run; also the observer inside the simulated server."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.replicas: list[Replica] = []
        """The model's replica after each position."""
        self.entries: list[Entry] = []
        self.seen: dict[tuple[str, int], int] = {}
        self.owners: dict[tuple[str, str, int, int], GroupId] = {}
        self.origin_position = -1
        self.emissions = 0
        self.losses: set[str] = set()
        self.evicted: set[GroupId] = set()
        """Groups whose session was closed by force, which no lease can foresee."""

    # --- the server's side ----------------------------------------------------------------------

    def created(self, position: int, payload: bytes, session: int | None) -> None:
        require(position == len(self.replicas), "L1", "the numbering has a gap at", position)
        entry = decode_entry(Position(position), payload)
        self.cluster.world.log("log", position, entry.writer, entry.command)
        if entry.writer:
            owner = self.cluster.server.pulses.get(entry.writer)
            require(
                owner is not None and owner == session,
                "L4",
                f"{entry.writer} wrote {entry.command.NAME} at {position} without its pulse",
            )
        old = self.model
        new = self.cluster.fold.model(old, entry)
        self._at_most_once(entry, old, new)
        self._counted_once(entry, old, new)
        self.entries.append(entry)
        self.replicas.append(new)
        if new is not old:
            broken = invariants.violations(new) + invariants.transition_violations(old, new)
            require(not broken, "R", f"{broken} after {entry}")
        stay = [group for group in new.groups if group in new.left]
        require(not stay, "F4", stay, "came back")

    @property
    def model(self) -> Replica:
        return self.replicas[-1] if self.replicas else Replica()

    def _at_most_once(self, entry: Entry, old: Replica, new: Replica) -> None:
        if not entry.writer:
            return
        key = (entry.writer, entry.sequence)
        first = self.seen.setdefault(key, entry.position)
        if first != entry.position:
            same = replace(old, version=new.version, rejected=new.rejected) == new
            require(same, "L3", f"{entry} had effect again (first at {first})")

    def _counted_once(self, entry: Entry, old: Replica, new: Replica) -> None:
        """A death is reported until somebody has heard of it, and counts once."""
        losses, before = by_job(new, "losses"), by_job(old, "losses")
        if losses == before and by_job(new, "suspects") == by_job(old, "suspects"):
            return
        if isinstance(entry.command, ReportLoss):
            name = entry.command.loss
            require(name not in self.losses, "L8", f"{entry} counted again")
            self.losses.add(name)
            if entry.command.killed and not entry.command.id:
                accused = losses != before or _accusations(new) != _accusations(old)
                require(not accused, "L8", f"{entry}: a kill over a batch accuses somebody")
        else:
            less = all(before.get(job) == losses[job] for job in losses)
            require(less, "L8", f"{entry} has changed what was lost")

    def origin_replaced(self, position: int, stored: Any) -> None:
        require(position >= self.origin_position, "L7", "the origin went back to", position)
        require(
            self.cluster.decode(stored) == self.replicas[position],
            "L7",
            f"the origin is not the replica after entry {position}",
        )
        self.origin_position = position

    def deleted(self, position: int) -> None:
        require(position <= self.origin_position, "L7", f"{position} deleted beyond the origin")

    # --- the processes' side --------------------------------------------------------------------

    def applied(self, process: Process, replica: Replica) -> Replica:
        """L1. Returns the model's own object for the same value: what follows is then shared."""
        expected = self.replicas[replica.version]
        if replica is not expected:
            require(
                replica == expected,
                "L1",
                f"{process.group} differs from the others at {replica.version}:",
                difference(expected, replica),
            )
        return expected

    def emitted(self, process: Process, peer: PeerId, running: Running) -> None:
        """A task did something visible."""
        self.emissions += 1
        state = process.state
        require(state is not None and not state.paused, "F3", process.group, "is paused and emits")
        require(
            process.group in self.cluster.server.pulses or process.group in self.evicted,
            "F2",
            f"{process.group} emits for {running} after its pulse is gone",
        )
        key = (running.job, running.task, running.slot, running.version)
        owner = self.owners.setdefault(key, process.group)
        require(owner == process.group, "F1", f"{process.group} and {owner} both run {key}")

    # --- at the end -----------------------------------------------------------------------------

    def replay(self) -> None:
        """L6: folding the whole log again, and from the origin, gives the same replica."""
        replica = Replica()
        for entry in self.entries:
            replica = self.cluster.fold.model(replica, entry)
        require(replica == self.model, "L6", "a replay differs:", difference(self.model, replica))
        position, stored = self.cluster.server.origin
        if stored is not None:
            replica = self.cluster.decode(stored)
            for entry in self.entries[position + 1 :]:
                replica = self.cluster.fold.model(replica, entry)
            require(replica == self.model, "L6", "a replay from the origin differs")


def difference(expected: Replica, found: Replica) -> str:
    """The fields in which two replicas differ."""
    names = Replica.__slots__
    return ", ".join(
        f"{name}: {getattr(expected, name)} / {getattr(found, name)}"
        for name in names
        if getattr(expected, name) != getattr(found, name)
    )


def _accusations(replica: Replica) -> dict[Any, int]:
    """Deaths that count against segments which were in user code with others."""
    return {
        (job, task, run[:3]): run[3]
        for job, tasks in by_job(replica, "suspects").items()
        for task, runs in tasks.items()
        for run in runs
        if run[3]
    }
