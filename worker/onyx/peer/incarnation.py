"""One incarnation of a peer group: the thread that feeds events to `group.step`.

This thread owns the group's state. It takes events from a bounded queue, steps the pure machine and
has its actions carried out. The parts have one concern each, and none of them knows another:

    Life            what all of them share: queue of events, lease, log, transport
    LogFeed         entries and sessions, as events; on the thread of the log
    group.step      what follows from an event (pure)
    ActionRunner    does it: log, timers, pause, checks of jobs, and through
    Workforce       tasks and ackers, their threads, what they ask of their process
    Watches         what is looked at beside events

When the incarnation ends (session lost, declared dead, or asked to leave) all its tasks are stopped
and nothing of it is used again: the next one has new ids, so no write of this one counts for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from onyx.errors import Fenced, OnyxError
from onyx.ids import GroupId, JobId, PeerId
from onyx.log.interface import GroupLog, Origin, Session
from onyx.peer import group, loss_reports
from onyx.peer.context import ProcessContext
from onyx.peer.group import (
    Action,
    AddPeers,
    AppendCommands,
    BackOffElapsed,
    EntryRead,
    Event,
    GroupLeft,
    Leave,
    OriginRead,
    Pause,
    PauseDue,
    PulseGone,
    RemovePeer,
    ReportLosses,
    Restart,
    Resume,
    SessionChanged,
    StartBackOff,
    StartPauseTimer,
)
from onyx.peer.life import Life, new_life
from onyx.peer.liveness import obstacle
from onyx.peer.watch.watches import LOOK_INTERVAL_S, GroupWatches
from onyx.peer.work.workforce import Workforce
from onyx.replica import canonical
from onyx.replica.command import Entry
from onyx.replica.effects import (
    AnswerCheck,
    Effect,
    ProbePulse,
    RemoveState,
    UnwatchPulse,
    WatchPulse,
)
from onyx.replica.job_events import WORKER_BEGAN, WORKER_PAUSED, WORKER_RESUMED, local_event
from onyx.replica.state import Replica
from onyx.reports.measures import WorkerMeasures
from onyx.telemetry.catalog import LOG_TAIL, SESSION_LOSSES
from onyx.telemetry.logs import happened
from onyx.transport.interface import Transport

logger = logging.getLogger("onyx.peer")

BACKGROUND_PATIENCE_S = 2.0
"""How long a group that leaves waits for what its tasks still write."""


class Incarnation:
    """One life of a group, from its session to its end. Create, `run` once, drop."""

    def __init__(
        self,
        context: ProcessContext,
        log: GroupLog,
        transport: Transport,
        replace_peer: Callable[[PeerId], None],
    ) -> None:
        """
        Args:
            context: the process.
            log: of this incarnation alone, which closes it.
            transport: as the log.
            replace_peer: gives up a virtual peer and offers a new one in its place.
        """
        self.group = log.group
        self._context = context
        self._log = log
        self._transport = transport
        self._offered: tuple[PeerId, ...] = ()
        self._receives = False
        self._state: group.GroupState | None = None
        self._life = new_life(context, log, transport, replace_peer)
        self._feed = LogFeed(self._life)
        self._work = Workforce(self._life, self._replica)
        self._watches = GroupWatches(self._life, self._work)
        self._actions = ActionRunner(self._life, self._work)

    # --- from other threads ------------------------------------------------------------------

    @property
    def state(self) -> group.GroupState | None:
        """What it knows; None while it connects."""
        return self._state

    def silent_s(self) -> float | None:
        """Seconds for which the log has not answered, once time has run out; else None."""
        return self._life.lease.silent_s()

    def inputs(self) -> WorkerMeasures:
        """How its inputs get on, in numbers. Raises Unavailable."""
        return self._work.measuring.inputs()

    def add_peers(self, peers: Sequence[PeerId]) -> None:
        """Offer virtual peers at the address of this incarnation."""
        self._offered += tuple(peers)
        site = {**self._context.site, "address": self._transport.address}
        self.post(AddPeers(tuple(peers), site, self._context.tags))

    def remove_peer(self, peer: PeerId) -> None:
        """Take a virtual peer back."""
        self._offered = tuple(each for each in self._offered if each != peer)
        self.post(RemovePeer(peer))

    def leave(self) -> None:
        """Leave the cluster; `run` returns when that is done."""
        self.post(Leave())

    def post(self, event: Event) -> None:
        """Queue an event."""
        self._life.events.post(event)

    # --- on the group's thread ---------------------------------------------------------------

    def run(self, peers: Sequence[PeerId]) -> GroupLeft | Restart:
        """Join with these peers, work until the end of this incarnation, and return how it ended.

        Raises:
            InvariantViolated: one of its threads has ended because of a bug.
            Unavailable: the log cannot be reached.
        """
        unsubscribe: Callable[[], None] | None = None
        try:
            origin = self._connect()
            self._state, actions = group.start(self.group, self._feed.replica_at(origin))
            unsubscribe = self._log.subscribe(
                origin.position, self._feed.read, self._life.events.crash
            )
            end = self._actions.carry_out(actions)
            self.post(ReportLosses(loss_reports.pending(self._context.recorder)))
            self.add_peers(peers)
            while end is None:
                self._watches.look(self._replica())
                event = self._life.events.next(LOOK_INTERVAL_S)
                if event is not None:
                    end = self._step(event)
            if isinstance(end, GroupLeft) and not self._state.connected:
                logger.warning(
                    "the log at %s does not answer: leaving without deregistering; the other "
                    "groups reassign the peers when this session has expired",
                    self._context.settings.log_place,
                )
            return end
        except Fenced as error:
            return Restart(str(error))
        finally:
            self._life.lease.end()
            self._life.events.close()
            if unsubscribe is not None:
                unsubscribe()
            self._stop()

    def _connect(self) -> Origin:
        self._log.on_session(self._feed.session_changed)
        # Before tasks and before the log is read: whoever sees an entry or a segment of this group
        # must find its pulse, or take it for dead.
        self._log.register_pulse()
        self._work.start()
        return self._log.origin()

    def _replica(self) -> Replica:
        assert self._state is not None, "tasks run only after the group has started"
        return self._state.replica

    def _step(self, event: Event) -> GroupLeft | Restart | None:
        assert self._state is not None
        if isinstance(event, Leave):
            self._end_tasks()
        started_s = self._context.clock.monotonic_s()
        had_peers = self._has_peers()
        before = self._state.replica
        self._state, actions = group.step(self._state, event)
        if self._has_peers() and not had_peers:
            self._log_joined()
        if isinstance(event, EntryRead):
            self._work.tasks.log.read(before, event.entry, self._state.replica)
            seconds = self._context.clock.monotonic_s() - started_s
            self._life.telemetry.applied(event.entry, self._state.replica, seconds)
            loss_reports.heard(self._context.recorder, event.entry)
        if not self._receives and not obstacle(self._state, self._offered):
            self._receives = True
            self._work.receive()
        self._life.telemetry.observe(self._state.replica, self._state.leaving)
        return self._actions.carry_out(actions)

    def _has_peers(self) -> bool:
        return bool(self._replica().groups_index.get(self.group))

    def _log_joined(self) -> None:
        settings = self._context.settings
        happened(
            local_event(
                WORKER_BEGAN,
                tenancy=settings.tenancy_id,
                address=settings.log_place,
                peers=len(self._offered),
                modules=", ".join(settings.modules) or "none",
                code=f"; code: {code}" if (code := self._context.code) else "",
            )
        )

    def _end_tasks(self) -> None:
        """End the tasks and let them write what they have, before the group leaves."""
        self._work.drain()
        self._watches.report_outcomes()
        self._life.background.wait(BACKGROUND_PATIENCE_S)

    def _stop(self) -> None:
        self._work.stop()
        # Before the transport, which may take seconds: a thread that has ended must not count as
        # one that is stuck.
        self._watches.close()
        self._transport.stop()
        self._life.telemetry.report_traffic(self._transport.counters())
        self._life.telemetry.close()
        self._log.close()
        self._life.background.stop()


# --- what the group decides is carried out ------------------------------------------------------


class ActionRunner:
    """The actions of one incarnation."""

    def __init__(self, life: Life, work: Workforce) -> None:
        self._log = life.log
        self._events = life.events
        self._lease = life.lease
        self._background = life.background
        self._context = life.context
        self._work = work
        self._place = life.context.settings.log_place

    def carry_out(self, actions: Sequence[Action]) -> GroupLeft | Restart | None:
        """Carry out the actions in order; the one that ends the incarnation, if there is one."""
        for_tasks: list[Effect] = []
        for action in actions:
            match action:
                case GroupLeft() | Restart():
                    return action
                case AppendCommands(commands, parent):
                    self._log.append(commands, parent)
                case WatchPulse(other):
                    self._log.watch_pulse(other, lambda gone: self._events.post(PulseGone(gone)))
                case UnwatchPulse(other):
                    self._log.unwatch_pulse(other)
                case ProbePulse(other):
                    self._probe(other)
                case RemoveState(job):
                    self._remove_state(job)
                case AnswerCheck():
                    self._work.checker.ask(action)
                case StartPauseTimer(suspension):
                    self._events.post_after(self._lease.remaining_s(), PauseDue(suspension))
                case StartBackOff():
                    self._events.post_after(self._back_off_s(), BackOffElapsed())
                case Pause():
                    happened(local_event(WORKER_PAUSED, address=self._place))
                    self._lease.pause()
                case Resume():
                    happened(local_event(WORKER_RESUMED, address=self._place))
                    self._lease.resume()
                    self._work.tasks.wake()
                case _:
                    for_tasks.append(action)
        self._work.tasks.apply(for_tasks)
        return None

    def _back_off_s(self) -> float:
        """Random, so that groups that join at once do not collide again."""
        return 2 * self._context.randomness.random() * self._context.settings.log.join_back_off_s

    def _probe(self, other: GroupId) -> None:
        def look() -> None:
            if not self._log.pulse_exists(other):
                self._events.post(PulseGone(other))

        self._background.run(look)

    def _remove_state(self, job: JobId) -> None:
        def work() -> None:
            try:
                self._work.services.state_store(durable=True).remove_tree(job)
            except OnyxError as error:
                logger.warning("the state of job %s could not be removed: %s", job, error)

        self._background.run(work)


# --- what the log says --------------------------------------------------------------------------


class LogFeed:
    """The callbacks of the log, and the replica at which it begins."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def replica_at(self, origin: Origin) -> Replica:
        """The replica from which this incarnation reads on."""
        if origin.replica:
            return canonical.decode(origin.replica)
        settings = self._life.context.settings
        parameters = self._life.log.establish({"job-scheduler": settings.job_scheduler})
        return Replica(job_scheduler=parameters["job-scheduler"])

    def read(self, item: Entry | Origin) -> None:
        """The next entry, or an origin that stands for entries that are gone."""
        self._life.context.metrics.set(LOG_TAIL, item.position)
        if isinstance(item, Origin):
            self._life.events.post(OriginRead(item.position, canonical.decode(item.replica)))
        else:
            self._life.events.post(EntryRead(item))

    def session_changed(self, session: Session) -> None:
        """The session was suspended, came back, or is lost."""
        if session is Session.LOST:
            # Here and not in `group.step`: tasks must not act until the event has been handled.
            self._life.lease.end()
            self._life.context.metrics.add(SESSION_LOSSES)
        self._life.events.post(SessionChanged(session))
