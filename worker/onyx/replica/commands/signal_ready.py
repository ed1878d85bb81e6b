"""A peer can receive on all its channels of an allocation version.

Without `version`, as in the original, it speaks of the present one. A signal for another version is
late and means nothing: its channels are gone.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import NO_POSITION, Position
from onyx.replica import jobs
from onyx.replica.command import Command, Peer
from onyx.replica.state import Replica


class SignalReady(Command, frozen=True):
    """A peer is ready for an allocation version of its job."""

    id: Peer
    version: int | None = None

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a peer without a task, and for another version than the present one."""
        place = jobs.assignment(replica, self.id)
        if place is None:
            return replica
        current = replica.run(place[0]).allocation_version
        if self.version is not None and self.version != current:
            return replica
        state, ready = replica.peer_state, replica.ready
        if state.get(self.id, "idle") == "idle":
            state = state.set(self.id, "active")
        if current != NO_POSITION and ready.get(self.id) != current:
            ready = ready.set(self.id, current)
        if state is replica.peer_state and ready is replica.ready:
            return replica
        return replace(replica, peer_state=state, ready=ready)
