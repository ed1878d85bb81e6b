"""How a group joins: three phases, and the abort of an attempt.

A group may be a member only while another one watches its pulse, so it enters the ring of watchers
in steps, each written by the group that the step before concerns:

    prepare-join-cluster   the joiner asks; a member is chosen that will watch it
    notify-join-cluster    the watcher watches the joiner, which watches the watcher's successor
    accept-join-cluster    the joiner is stitched into the ring between the two, and is a member
    abort-join-cluster     the joiner gives up this attempt and, after a random wait, asks again

The four commands are one module because each is the reaction to another one.

Invariant: a group is in the ring (`pairs`) if and only if it is a member, unless it is the only
one; `prepared` and `accepted` have at most one joiner for each watcher.
"""

from __future__ import annotations

from msgspec.structs import replace

from onyx.ids import GroupId, PeerId, Position
from onyx.replica import members
from onyx.replica.command import Command, Group
from onyx.replica.effects import BackOff, Effect, ProbePulse
from onyx.replica.state import Replica


class PrepareJoinCluster(Command, frozen=True):
    """A group asks to join. The first group of all is a member at once.

    When no member is free, the joiner has to try again; it may be that all members are dead, so it
    looks whether one of them lives (`ProbePulse`).
    """

    joiner: Group

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a member, for a group that has left, and for one that is joining."""
        joiner = self.joiner
        if (
            joiner in replica.groups
            or joiner in replica.left
            or members.is_joining(replica, joiner)
        ):
            return replica
        if not replica.groups:
            return members.join(replica, joiner)
        free, _ = members.entrances(replica, joiner)
        if not free:
            return replace(replica, aborted=replica.aborted.set(joiner, None))
        return replace(
            replica,
            prepared=replica.prepared.set(free[position % len(free)], joiner),
            aborted=members.without(replica.aborted, joiner),
        )

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """The chosen watcher notifies; a joiner for whom nobody was free aborts."""
        joiner = self.joiner
        has_joined = joiner in new.groups and joiner not in old.groups
        watcher = members.watcher_in(new.prepared, joiner)
        chosen = watcher is not None and watcher not in old.prepared
        if not has_joined and chosen and watcher == me:
            return (NotifyJoinCluster(observer=joiner),)
        if not has_joined and not chosen and me == joiner and me in new.aborted:
            return (AbortJoinCluster(id=me),)
        return ()

    def effects(
        self, position: Position, old: Replica, new: Replica, me: GroupId
    ) -> tuple[Effect, ...]:
        """A joiner for whom nobody was free probes one of the busy members."""
        if me != self.joiner or me not in new.aborted:
            return ()
        _, busy = members.entrances(new, me)
        return (ProbePulse(busy[position % len(busy)]),) if busy else ()


class NotifyJoinCluster(Command, frozen=True):
    """The watcher says that it watches the joiner."""

    observer: Group
    """The joiner, as the original calls it."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change when nobody was chosen to watch the joiner."""
        watcher = members.watcher_in(replica.prepared, self.observer)
        if watcher is None or self.observer in replica.groups:
            return replica
        return replace(
            replica,
            prepared=replica.prepared.delete(watcher),
            accepted=replica.accepted.set(watcher, self.observer),
        )

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """The joiner accepts; one whose attempt has ended meanwhile aborts."""
        if me != self.observer or me in new.groups:
            return ()
        watcher = members.watcher_in(new.accepted, me)
        if watcher is not None and watcher not in old.accepted:
            return (acceptance(new, watcher, me),)
        # A late notice of an earlier attempt must not end the present attempt.
        return () if members.is_joining(new, me) else (AbortJoinCluster(id=me),)


class AcceptJoinCluster(Command, frozen=True):
    """The joiner has its watches and becomes a member."""

    observer: Group
    """The joiner."""
    subject: Group
    """Whom it watches; the ring as it is now counts, which may have changed since."""
    accepted_observer: Group
    """The watcher that takes it in."""
    accepted_joiner: Group

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change unless this watcher has notified this joiner and its successor is a member."""
        watcher, joiner = self.accepted_observer, self.accepted_joiner
        target = members.successor(replica, watcher)
        if joiner in replica.groups or joiner in replica.left or target not in replica.groups:
            return replica
        if replica.accepted.get(watcher) != joiner:
            return replica
        pairs = replica.pairs.set(watcher, joiner).set(joiner, target)
        accepted = replica.accepted.delete(watcher)
        return members.join(replace(replica, pairs=pairs, accepted=accepted), joiner)

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """A joiner that is still out, and in no later attempt, aborts."""
        has_joined = me in new.groups and me not in old.groups
        if me != self.accepted_joiner or has_joined:
            return ()
        this_attempt = new.accepted.get(self.accepted_observer) == me
        if members.is_joining(new, me) and not this_attempt:
            return ()
        return (AbortJoinCluster(id=me),)


class AbortJoinCluster(Command, frozen=True):
    """An attempt to join has failed; after a random wait (`BackOff`) the joiner asks again.

    Other than the original, whose guard looks among the peers only, a group that has joined cannot
    be aborted: it would be marked although it is a member.
    """

    id: Group
    """The joiner."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a member, and for a group that has left."""
        if not self._may_abort(replica):
            return replica
        prepared = members.watcher_in(replica.prepared, self.id)
        accepted = members.watcher_in(replica.accepted, self.id)
        return replace(
            replica,
            prepared=replica.prepared if prepared is None else replica.prepared.delete(prepared),
            accepted=replica.accepted if accepted is None else replica.accepted.delete(accepted),
            aborted=replica.aborted.set(self.id, None),
        )

    def reactions(self, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
        """The joiner asks again."""
        return (PrepareJoinCluster(joiner=me),) if self._concerns(old, me) else ()

    def effects(
        self, position: Position, old: Replica, new: Replica, me: GroupId
    ) -> tuple[Effect, ...]:
        """The joiner waits a random time before its reaction is written."""
        return (BackOff(),) if self._concerns(old, me) else ()

    def _concerns(self, old: Replica, me: GroupId) -> bool:
        return me == self.id and self._may_abort(old)

    def _may_abort(self, replica: Replica) -> bool:
        is_member = self.id in replica.groups or PeerId(self.id) in replica.peers
        return not is_member and self.id not in replica.left


def acceptance(replica: Replica, watcher: GroupId, joiner: GroupId) -> AcceptJoinCluster:
    """What a joiner writes that `watcher` has accepted."""
    return AcceptJoinCluster(
        observer=joiner,
        subject=members.successor(replica, watcher),
        accepted_observer=watcher,
        accepted_joiner=joiner,
    )
