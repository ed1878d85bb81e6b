"""A group is gone: written by its watcher, or by itself when it leaves in order.

A job is killed that had a peer of it on a task of flux policy `kill`. The original looks for the
group among the peers there, finds none, and the job goes on without part of its state.
"""

from __future__ import annotations

from onyx.ids import GroupId, Position
from onyx.replica import jobs, members
from onyx.replica.command import Command, Group
from onyx.replica.commands.join_cluster import AbortJoinCluster
from onyx.replica.state import Replica


class GroupLeaveCluster(Command, frozen=True):
    """A group is no member any more and never will be again."""

    id: Group

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a group that has left already; one that never joined is remembered, too."""
        if self.id in replica.left:
            return replica
        peers = replica.groups_index.get(self.id, ())
        return members.leave(jobs.kill_by_flux(replica, peers), self.id, position)

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """A group that was joining through this one aborts its attempt."""
        if me in members.joiners_at(old, self.id):
            return (AbortJoinCluster(id=me),)
        return ()
