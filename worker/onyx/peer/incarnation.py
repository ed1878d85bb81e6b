"""One incarnation of a peer group: the thread that feeds events to `group.step`.

This thread owns the group's state. It takes events from a bounded queue, steps the pure machine and
has its actions carried out. The parts have one concern each, and none of them knows this module:

    EventQueue      what happens: entries, sessions, timers, proposals of tasks
    group.step      what follows from it (pure)
    ActionRunner    does it: log, timers, pause, checks of jobs, and through
    RunningTasks    tasks and ackers, which ask their process by TaskServices
    Holding         tells others what they work on
    Lease           how long they may act without hearing from ZooKeeper

When the incarnation ends (session lost, declared dead, or asked to leave) all its tasks are stopped
and nothing of it is used again: the next one has new ids, so no write of this one counts for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from onyx.codes import CODE
from onyx.errors import Fenced
from onyx.ids import PeerId
from onyx.log.interface import GroupLog, Origin, Session
from onyx.peer import group, loss_reports
from onyx.peer.action_runner import ActionRunner
from onyx.peer.actions import Left, Restart
from onyx.peer.background import Background
from onyx.peer.code_watch import CodeWatch
from onyx.peer.collecting import Collecting
from onyx.peer.context import Context
from onyx.peer.event_queue import EventQueue
from onyx.peer.events import (
    AddPeers,
    Answer,
    EntryRead,
    Event,
    Leave,
    OriginRead,
    RemovePeer,
    Report,
    SessionChanged,
)
from onyx.peer.group_telemetry import GroupTelemetry
from onyx.peer.holding import Holding
from onyx.peer.job_checker import JobChecker
from onyx.peer.lease import Lease
from onyx.peer.liveness import Watched
from onyx.peer.outcome_reports import OutcomeReports
from onyx.peer.running_tasks import RunningTasks
from onyx.peer.stall_watch import StallWatch
from onyx.peer.tags import tags_of
from onyx.peer.task_services import TaskServices
from onyx.peer.task_threads import TaskThreads
from onyx.replica import canonical
from onyx.replica.entry import Entry
from onyx.replica.state import Replica
from onyx.telemetry.catalog import LOG_TAIL, SESSION_LOSSES
from onyx.transport.interface import Transport

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0
"""Period of what is done beside events: beats of liveness, traffic, the watch over tasks."""
BACKGROUND_PATIENCE_S = 2.0
"""How long a group that leaves waits for what its tasks still write."""


class Incarnation:
    """One life of a group, from its session to its end. Create, `run` once, drop."""

    def __init__(self, context: Context, log: GroupLog, transport: Transport) -> None:
        """`log` and `transport` are of this incarnation alone, which closes both."""
        self.group = log.group
        self._context = context
        self._log = log
        self._transport = transport
        self._offered = 0
        self._next_look_s = 0.0
        self._state: group.GroupState | None = None
        self._events = EventQueue()
        self._lease = Lease(context.clock, log)
        self._background = Background(self.group)
        self._telemetry = GroupTelemetry(self.group, context.metrics)
        self._threads = TaskThreads(
            self.group,
            context.settings.task.stop_timeout_s,
            self._events.crash,
            lambda: context.liveness.beat(Watched.TASKS),
        )
        services = TaskServices(
            context,
            log,
            transport,
            self._lease,
            self._background,
            self._telemetry,
            self._events.post,
            self._replica,
        )
        self._tasks = RunningTasks(self.group, services, self._threads)
        crashed = self._events.crash
        self._holding = Holding(self.group, transport, context.clock, self._tasks, crashed)
        self._checker = JobChecker(services, self.group, lambda answer: self.post(Answer(answer)))
        after_s, background = context.settings.telemetry.job_stalled_after_s, self._background.run
        self._watch = StallWatch(log, context.metrics, context.clock, background, after_s)
        counts = None if context.recorder is None else context.recorder.counts
        self._outcomes = OutcomeReports(log, context.clock, self._background.run, counts)
        code = str(context.site.get(CODE, ""))
        self._code = CodeWatch(log, code, tags_of(context.settings), background)
        self._collecting = Collecting(services, self.group)
        self._actions = ActionRunner(
            log,
            self._events,
            self._lease,
            self._background,
            services,
            self._tasks,
            self._checker,
            context.randomness,
        )

    # --- from other threads ------------------------------------------------------------------

    @property
    def state(self) -> group.GroupState | None:
        """What it knows; None while it connects."""
        return self._state

    def silent_s(self) -> float | None:
        """Seconds for which ZooKeeper has not answered, once time has run out; else None."""
        return self._lease.silent_s()

    def add_peers(self, peers: Sequence[PeerId]) -> None:
        """Offer virtual peers at the address of this incarnation."""
        self._offered += len(peers)
        site = {**self._context.site, "address": self._transport.address}
        self.post(AddPeers(tuple(peers), site, tags_of(self._context.settings)))

    def remove_peer(self, peer: PeerId) -> None:
        """Take a virtual peer back."""
        self.post(RemovePeer(peer))

    def leave(self) -> None:
        """Leave the cluster; `run` returns when that is done."""
        self.post(Leave())

    def post(self, event: Event) -> None:
        """Queue an event."""
        self._events.post(event)

    # --- on the group's thread ---------------------------------------------------------------

    def run(self, peers: Sequence[PeerId]) -> Left | Restart:
        """Join with these peers, work until the end of this incarnation, and return how it ended.

        Raises:
            InvariantViolated: one of its threads has ended because of a bug.
            Unavailable: ZooKeeper cannot be reached.
        """
        unsubscribe: Callable[[], None] | None = None
        try:
            origin = self._connect()
            self._state, actions = group.start(self.group, self._replica_at(origin))
            unsubscribe = self._log.subscribe(origin.position, self._read)
            end = self._actions.carry_out(actions)
            self.post(Report(loss_reports.pending(self._context.recorder)))
            self.add_peers(peers)
            while end is None:
                self._look()
                event = self._events.next(LOOK_INTERVAL_S)
                if event is not None:
                    end = self._step(event)
            if isinstance(end, Left) and not self._state.connected:
                logger.warning(
                    "ZooKeeper is unreachable: leaving without deregistering; the other groups "
                    "reassign the peers when this session has expired"
                )
            return end
        except Fenced as error:
            return Restart(str(error))
        finally:
            self._lease.end()
            self._events.close()
            if unsubscribe is not None:
                unsubscribe()
            self._stop()

    def _connect(self) -> Origin:
        self._log.on_session(self._session_changed)
        self._log.register_pulse()
        self._transport.start(self.group, self._tasks)
        self._transport.on_room(self._threads.wake)
        self._threads.start()
        self._holding.start()
        return self._log.origin()

    def _replica_at(self, origin: Origin) -> Replica:
        if origin.replica:
            return canonical.decode(origin.replica)
        parameters = self._log.establish({"job-scheduler": self._context.settings.job_scheduler})
        return Replica(job_scheduler=parameters["job-scheduler"])

    def _replica(self) -> Replica:
        assert self._state is not None, "tasks run only after the group has started"
        return self._state.replica

    def _look(self) -> None:
        self._context.liveness.beat(Watched.GROUP)
        now_s = self._context.clock.monotonic_s()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_INTERVAL_S
            self._log.call(lambda: self._context.liveness.beat(Watched.LOG))
            self._telemetry.report_traffic(self._transport.counters())
        permitted = self._lease.permitted()
        self._watch.look(self._tasks.runners, self._replica(), permitted)
        self._outcomes.look(permitted)
        self._code.look(self._replica(), permitted)
        self._collecting.look(self._replica(), permitted)

    def _step(self, event: Event) -> Left | Restart | None:
        assert self._state is not None
        if isinstance(event, Leave):
            self._end_tasks()
        started_s = self._context.clock.monotonic_s()
        had_peers = self._has_peers()
        self._state, actions = group.step(self._state, event)
        if self._has_peers() and not had_peers:
            self._log_joined()
        if isinstance(event, EntryRead):
            seconds = self._context.clock.monotonic_s() - started_s
            self._telemetry.applied(event.entry, self._state.replica, seconds)
            loss_reports.heard(self._context.recorder, event.entry)
        self._telemetry.observe(self._state.replica, self._state.leaving)
        return self._actions.carry_out(actions)

    def _has_peers(self) -> bool:
        return bool(self._replica().groups_index.get(self.group))

    def _log_joined(self) -> None:
        settings = self._context.settings
        logger.info(
            "joined tenancy %s at ZooKeeper %s with %d peers; modules: %s%s",
            settings.tenancy_id,
            settings.zookeeper.address,
            self._offered,
            ", ".join(settings.modules) or "none",
            f"; code: {code}" if (code := self._context.site.get(CODE)) else "",
        )

    def _end_tasks(self) -> None:
        """Before leaving: inputs return their partitions and outputs close what they write, while
        the pulse of this group still lets them."""
        self._tasks.stop()
        self._threads.drain()
        self._outcomes.end()
        self._background.wait(BACKGROUND_PATIENCE_S)

    def _stop(self) -> None:
        self._tasks.stop()
        self._checker.stop()
        self._holding.stop()
        self._threads.stop()
        self._context.liveness.forget(Watched.TASKS, Watched.LOG)
        self._transport.stop()
        self._telemetry.report_traffic(self._transport.counters())
        self._telemetry.close()
        self._watch.close()
        self._collecting.close()
        self._log.close()
        self._background.stop()

    # --- callbacks of the log, on its thread -------------------------------------------------

    def _read(self, item: Entry | Origin) -> None:
        self._context.metrics.set(LOG_TAIL, item.position)
        if isinstance(item, Origin):
            self.post(OriginRead(item.position, canonical.decode(item.replica)))
        else:
            self.post(EntryRead(item))

    def _session_changed(self, session: Session) -> None:
        if session is Session.LOST:
            # Here and not in `group.step`: tasks must not act until the event has been handled.
            self._lease.end()
            self._context.metrics.add(SESSION_LOSSES)
        self.post(SessionChanged(session))
