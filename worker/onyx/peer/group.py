"""The peer group as a pure state machine: `step(state, event) -> (state, actions)`.

A group is one incarnation of one worker process. It applies the entries of the log, writes the
entries that it owes in reaction, watches its successor in the ring, and starts and stops the tasks
of its peers. All of that is returned as actions, which are data: `peer/incarnation` carries them
out, and the simulator drives exactly this code. No clock and no randomness: an action asks for a
timer, and the timer comes back as an event.

Decisions:

* Before the group has joined, it writes only the join protocol (`add-virtual-peer` waits as well,
  which the original writes at once): a group that dies before anybody watches it leaves no trace.
* Watches and tasks are level-based (`replica.reconcile`): the difference of what two replicas ask
  of this group. An edge-based version must handle every pair of events by hand.
* A jump to an origin skips entries to which this group may have owed a reaction, so the reactions
  owed by the new replica are computed from its state (`peer.group.owed`).
* A group that leaves waits until it reads its own departure in the log. When ZooKeeper is
  unreachable for as long as the lease lasts, it leaves without: the other groups learn of it when
  the session expires.
* An incarnation ends once, and its id is never used again: `start` makes a new group with new ids.
  So no entry about a dead incarnation can concern a living one.

What a group owes of the join protocol follows from the replica as it is, not from the entry that
made it so. That is what makes a jump over collected entries harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
from immutables import Map
from msgspec.structs import replace

from onyx.ids import GroupId, JobId, PeerId, Position, TaskName
from onyx.log.interface import Session
from onyx.peer import gathering
from onyx.peer.gathering import Gathering
from onyx.replica import machine, members, reconcile
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AbortJoinCluster,
    AcceptJoinCluster,
    AddVirtualPeer,
    GroupLeaveCluster,
    LeaveCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
    SignalReady,
)
from onyx.replica.commands.join_cluster import acceptance
from onyx.replica.effects import (
    BackOff,
    Effect,
    RestartGroup,
    StartTask,
    StopTask,
)
from onyx.replica.state import Replica

# --- events -------------------------------------------------------------------------------------


class EntryRead(msgspec.Struct, frozen=True):
    """The next entry of the log."""

    entry: Entry


class OriginRead(msgspec.Struct, frozen=True):
    """The reader had fallen behind a garbage collection: this replica stands for what it missed."""

    position: Position
    replica: Replica


class PulseGone(msgspec.Struct, frozen=True):
    """A watch or probe found that this group's pulse does not exist."""

    group: GroupId


class SessionChanged(msgspec.Struct, frozen=True):
    """The ZooKeeper session was suspended, came back, or is lost."""

    session: Session


class PauseDue(msgspec.Struct, frozen=True):
    """The timer asked for by `StartPauseTimer(suspension)` has elapsed."""

    suspension: int


class BackOffElapsed(msgspec.Struct, frozen=True):
    """The wait asked for by `StartBackOff` is over."""


class AddPeers(msgspec.Struct, frozen=True):
    """This process offers virtual peers."""

    peers: tuple[PeerId, ...]
    """New ids, never used before."""
    site: Mapping[str, Any] = msgspec.field(default_factory=dict)
    tags: tuple[str, ...] = ()


class RemovePeer(msgspec.Struct, frozen=True):
    """This process takes one of its virtual peers back."""

    peer: PeerId


class Propose(msgspec.Struct, frozen=True):
    """A task of this group proposes an entry. Void when the peer no longer has the task."""

    peer: PeerId
    command: Command


class GroupAnswer(msgspec.Struct, frozen=True):
    """The answer of this group to a question in the log. Void when it is no member."""

    command: Command


class ReportLosses(msgspec.Struct, frozen=True):
    """Entries on behalf of the process before this one, which died (`peer/loss_reports`)."""

    commands: tuple[Command, ...]


class Leave(msgspec.Struct, frozen=True):
    """The process has been asked to end (SIGTERM)."""


Event = (
    EntryRead
    | OriginRead
    | PulseGone
    | SessionChanged
    | PauseDue
    | BackOffElapsed
    | AddPeers
    | RemovePeer
    | Propose
    | GroupAnswer
    | ReportLosses
    | Leave
)


# --- actions ------------------------------------------------------------------------------------


class AppendCommands(msgspec.Struct, frozen=True):
    """Enqueue these commands for the log, in order."""

    commands: tuple[Command, ...]
    parent: Position | None = None
    """Entry to which they are the reaction."""


class Pause(msgspec.Struct, frozen=True):
    """No task may act: nothing is read, sent or written until `Resume`. State is kept."""


class Resume(msgspec.Struct, frozen=True):
    """The session has survived: tasks act again, from where they paused."""


class StartPauseTimer(msgspec.Struct, frozen=True):
    """Return `PauseDue(suspension)` after `lease.pause_delay_s`."""

    suspension: int


class StartBackOff(msgspec.Struct, frozen=True):
    """Return `BackOffElapsed` after a random time around `join_back_off_s`."""


class Restart(msgspec.Struct, frozen=True):
    """This incarnation is dead: stop its tasks, and start a new one with new ids."""

    reason: str


class GroupLeft(msgspec.Struct, frozen=True):
    """The group has left the cluster: tasks are stopped, the session may be closed."""


Action = (
    Effect | AppendCommands | Pause | Resume | StartPauseTimer | StartBackOff | Restart | GroupLeft
)
"""`WatchPulse` and `UnwatchPulse` are idempotent; `WatchPulse` of a dead group reports at once."""


# --- the state machine --------------------------------------------------------------------------

_NOTHING: Map[Any, Any] = Map()

_NONE_GATHERED = Gathering()

Result = tuple["GroupState", tuple[Action, ...]]


class GroupState(msgspec.Struct, frozen=True):
    """All that one incarnation knows."""

    group: GroupId
    replica: Replica
    leaving: bool = False
    ended: bool = False
    """Restart or Left has been returned: every further event is ignored."""
    connected: bool = True
    paused: bool = False
    suspensions: int = 0
    """How often the connection was lost: a pause timer with a smaller number is void."""
    held: tuple[Command, ...] = ()
    """Commands to be written once the group has joined."""
    retry: tuple[Command, ...] = ()
    """Commands to be written after the back-off."""
    dead: Map[GroupId, None] = _NOTHING
    """Groups whose pulse is gone, reported, and still in the replica."""
    tasks: Map[PeerId, tuple[JobId, TaskName]] = _NOTHING
    """The task that each peer of this group runs, by the effects so far."""
    gathered: Gathering = _NONE_GATHERED
    """What some peers of this group have proposed, and others have not yet."""

    @property
    def joined(self) -> bool:
        """Whether the group is a member of the cluster."""
        return self.group in self.replica.groups


def start(group: GroupId, replica: Replica) -> Result:
    """A new incarnation, whose pulse exists already, asks to join.

    Args:
        group: the new id; never used before.
        replica: the origin from which the log is read on (or the empty replica with the
            cluster's parameters).
    """
    return GroupState(group, replica), (AppendCommands((PrepareJoinCluster(joiner=group),)),)


def step(state: GroupState, event: Event) -> Result:
    """The state after an event, and the actions to carry out, in order. Never raises."""
    if state.ended:
        return state, ()
    match event:
        case EntryRead(entry):
            return _read(state, entry)
        case OriginRead(position, replica):
            return _jump(state, position, replica)
        case PulseGone(group):
            return _pulse_gone(state, group)
        case SessionChanged(session):
            return _session(state, session)
        case PauseDue(suspension):
            return _pause(state, suspension)
        case BackOffElapsed():
            return replace(state, retry=()), _append(() if state.leaving else state.retry)
        case AddPeers():
            return _propose(state, additions(state.group, event))
        case RemovePeer(peer):
            return _remove(state, peer)
        case Propose(peer, command):
            return _proposed(state, peer, command)
        case GroupAnswer(command):
            may = state.joined and not state.leaving
            return state, _append((command,)) if may else ()
        case ReportLosses(commands):
            return _propose(state, commands)
        case Leave():
            return _leave(state)
    assert_never(event)


def _read(state: GroupState, entry: Entry) -> Result:
    old, me = state.replica, state.group
    assert entry.position > old.version, "entries are applied once, in order"
    new = machine.apply(old, entry)
    commands = machine.reactions(entry, old, new, me)
    effects = machine.effects(entry, old, new, me)
    signalled = entry.writer == me and isinstance(entry.command, SignalReady)
    return _settle(state, new, entry.position, commands, effects, signalled)


def _jump(state: GroupState, position: Position, replica: Replica) -> Result:
    assert position > state.replica.version, "an origin is read only by those who are behind it"
    if state.leaving and not is_known(replica, state.group):
        return _end(state, "left before the origin")
    effects = tuple(reconcile.changes(state.replica, replica, state.group))
    backing_off = bool(state.retry)
    commands = owed(replica, state.group, backing_off=backing_off)
    return _settle(state, replica, position, commands, effects, signalled=True)


def _settle(
    state: GroupState,
    new: Replica,
    parent: Position,
    commands: tuple[Command, ...],
    effects: tuple[Effect, ...],
    signalled: bool,
) -> Result:
    """The common end of everything that changes the replica. `signalled`: see `gathering.read`."""
    gone = state.group in new.left or (state.joined and state.group not in new.groups)
    if gone:
        return _end(replace(state, replica=new), "declared dead")
    gathered, signals = gathering.read(state.gathered, new, signalled)
    state = replace(
        state,
        replica=new,
        dead=_still_there(state.dead, new),
        tasks=_assigned(state.tasks, effects),
        gathered=gathered,
    )
    first = tuple(each for each in effects if not isinstance(each, BackOff | RestartGroup))
    if state.leaving:
        return state, first
    if any(isinstance(each, BackOff) for each in effects):
        return replace(state, retry=commands), (*first, StartBackOff())
    state, commands = _release(state, commands)
    return state, (*first, *_append(commands, parent), *_append(signals))


def _assigned(
    tasks: Map[PeerId, tuple[JobId, TaskName]], effects: tuple[Effect, ...]
) -> Map[PeerId, tuple[JobId, TaskName]]:
    for effect in effects:
        if isinstance(effect, StopTask) and effect.peer in tasks:
            tasks = tasks.delete(effect.peer)
        elif isinstance(effect, StartTask):
            tasks = tasks.set(effect.peer, (effect.job, effect.task))
    return tasks


def _release(
    state: GroupState, commands: tuple[Command, ...]
) -> tuple[GroupState, tuple[Command, ...]]:
    """What may be written now: everything once joined, before that only the join protocol."""
    if state.joined:
        held = state.held
        return (replace(state, held=()) if held else state), held + commands
    join = tuple(each for each in commands if isinstance(each, JOIN_PROTOCOL))
    rest = tuple(each for each in commands if not isinstance(each, JOIN_PROTOCOL))
    return (replace(state, held=state.held + rest) if rest else state), join


def _propose(state: GroupState, commands: tuple[Command, ...]) -> Result:
    if state.leaving:
        return state, ()
    state, commands = _release(state, commands)
    return state, _append(commands)


def _proposed(state: GroupState, peer: PeerId, command: Command) -> Result:
    if not _may_propose(state, peer, command):
        return state, ()
    if not gathering.is_gathered(command):
        return state, _append((command,))
    held, entries = gathering.gather(state.gathered, state.replica, state.group, peer, command)
    return replace(state, gathered=held), _append(entries)


def _may_propose(state: GroupState, peer: PeerId, command: Command) -> bool:
    """A task proposes only while its peer has it: proposals of a stopped task are void."""
    if state.leaving or not state.joined or peer not in state.tasks:
        return False
    job, _ = state.tasks[peer]
    return getattr(command, "job", job) == job


def _remove(state: GroupState, peer: PeerId) -> Result:
    held = tuple(
        each for each in state.held if not (isinstance(each, AddVirtualPeer) and each.id == peer)
    )
    if state.leaving or held != state.held:
        return replace(state, held=held), ()
    return _propose(state, (LeaveCluster(id=peer, group_id=state.group),))


def _still_there(dead: Map[GroupId, None], new: Replica) -> Map[GroupId, None]:
    for group in sorted(dead):
        if not is_known(new, group):
            dead = dead.delete(group)
    return dead


def _pulse_gone(state: GroupState, group: GroupId) -> Result:
    news = group not in state.dead and is_known(state.replica, group)
    if not news or state.leaving or group == state.group:
        return state, ()
    return replace(state, dead=state.dead.set(group, None)), _append((GroupLeaveCluster(id=group),))


def _session(state: GroupState, session: Session) -> Result:
    match session:
        case Session.SUSPENDED if state.connected:
            number = state.suspensions + 1
            return replace(state, connected=False, suspensions=number), (StartPauseTimer(number),)
        case Session.CONNECTED if not state.connected:
            resume = (Resume(),) if state.paused else ()
            again = tuple(GroupLeaveCluster(id=group) for group in sorted(state.dead))
            return replace(state, connected=True, paused=False), (*resume, *_append(again))
        case Session.LOST:
            return _end(state, "session lost")
    return state, ()


def _pause(state: GroupState, suspension: int) -> Result:
    if state.connected or state.paused or suspension != state.suspensions:
        return state, ()
    if state.leaving:
        return _end(state, "left while the log did not answer")
    return replace(state, paused=True), (Pause(),)


def _leave(state: GroupState) -> Result:
    if state.leaving:
        return state, ()
    peers = state.replica.groups_index.get(state.group, ())
    commands: tuple[Command, ...] = (
        *(LeaveCluster(id=peer, group_id=state.group) for peer in peers),
        GroupLeaveCluster(id=state.group),
    )
    state = replace(state, leaving=True, held=(), retry=())
    return (
        _end(state, "left while the log did not answer")
        if state.paused
        else (state, _append(commands))
    )


def _end(state: GroupState, reason: str) -> Result:
    action = GroupLeft() if state.leaving else Restart(reason)
    return replace(state, ended=True), (action,)


def _append(commands: tuple[Command, ...], parent: Position | None = None) -> tuple[Action, ...]:
    return (AppendCommands(commands, parent),) if commands else ()


# --- the join protocol and departures -----------------------------------------------------------

JOIN_PROTOCOL = (
    PrepareJoinCluster,
    NotifyJoinCluster,
    AcceptJoinCluster,
    AbortJoinCluster,
    GroupLeaveCluster,
)
"""Commands that a group may write before it has joined."""


def additions(group: GroupId, event: AddPeers) -> tuple[Command, ...]:
    """Virtual peers that the group offers."""
    return tuple(
        AddVirtualPeer(id=peer, group_id=group, peer_site=dict(event.site), tags=tuple(event.tags))
        for peer in event.peers
    )


def is_known(replica: Replica, group: GroupId) -> bool:
    """Whether the replica still counts on this group: member or joiner."""
    return group in replica.groups or members.is_joining(replica, group)


def owed(replica: Replica, me: GroupId, *, backing_off: bool) -> tuple[Command, ...]:
    """The join protocol's next commands of `me`, from the state alone.

    For a reader that has jumped to an origin: the entries to which these are the reactions may be
    among those collected. Writing one twice has no effect.
    """
    commands: list[Command] = []
    if me in replica.prepared:
        commands.append(NotifyJoinCluster(observer=replica.prepared[me]))
    watcher = members.watcher_in(replica.accepted, me)
    if watcher is not None:
        commands.append(acceptance(replica, watcher, me))
    if not is_known(replica, me) and not backing_off:
        commands.append(PrepareJoinCluster(joiner=me))
    return tuple(commands)
