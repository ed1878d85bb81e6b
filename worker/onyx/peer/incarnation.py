"""One incarnation of a peer group in the real world: it interprets what `group.step` decides.

One thread owns the group's state: it takes events from a bounded queue, steps the pure machine and
carries out the actions. Callbacks of the log, timers and tasks only put events. Whatever is slow is
done on a small pool. When the incarnation ends (session lost, declared dead, or asked to leave) all
its tasks are stopped and nothing of it is used again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from onyx.codec.entries import encode_entry
from onyx.errors import Fenced, InvariantViolated, OnyxError, describe
from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, TaskName
from onyx.log import job_documents
from onyx.log.append_queue import check_size
from onyx.log.interface import GroupLog, Origin, Session
from onyx.model.job import Job
from onyx.peer import group, lease, loss_reports
from onyx.peer.actions import (
    Action,
    Append,
    Left,
    Pause,
    Restart,
    Resume,
    StartBackOff,
    StartPauseTimer,
)
from onyx.peer.events import (
    AddPeers,
    Answer,
    BackOffElapsed,
    EntryRead,
    Event,
    Leave,
    OriginRead,
    PauseDue,
    Propose,
    PulseGone,
    RemovePeer,
    Report,
    SessionChanged,
)
from onyx.peer.group_telemetry import Observer
from onyx.peer.job_checker import JobChecker
from onyx.peer.liveness import Liveness, Watched
from onyx.peer.running_tasks import Workload
from onyx.peer.stall_watch import Watch
from onyx.peer.task_threads import Executor
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.recorder import NoRecorder, Recorder, Recording
from onyx.replica import canonical
from onyx.replica.effects import (
    CheckJob,
    Effect,
    ProbePulse,
    RemoveState,
    UnwatchPulse,
    WatchPulse,
)
from onyx.replica.entry import Command, Entry
from onyx.replica.state import Replica
from onyx.resolve import Resolver
from onyx.seams import Clock, Randomness
from onyx.settings import Settings
from onyx.state.stores.interface import ChunkStore
from onyx.state.stores.memory import MemoryChunkStore
from onyx.state.stores.opening import open_store, remove, state_place
from onyx.telemetry.interface import GroupMetrics, TaskMetrics
from onyx.telemetry.logs import locate, location
from onyx.transport.interface import Transport
from onyx.transport.state_queries import StateAnswer, StateQuery

logger = logging.getLogger("onyx.peer")
T = TypeVar("T")

EVENTS_MAX = 10_000
POST_PATIENCE_S = 1.0
"""How long a full queue holds a thread before it looks whether the incarnation still lives."""
TELL_INTERVAL_S = 1.0
"""Period at which telemetry hears of the traffic."""
BACKGROUND_THREADS = 4
SEQUENCE_MAX = 2**63 - 1
"""Written out, it is as long as any sequence of a writer gets."""
BACKGROUND_PATIENCE_S = 2.0
"""How long a group that leaves waits for what its tasks still save."""


@dataclass(frozen=True, slots=True)
class _Crash:
    """A thread has ended because of a bug: this process cannot go on."""

    reason: str


class Incarnation:
    """Implements `task.services.Services` and the transport's `Handlers`."""

    def __init__(
        self,
        settings: Settings,
        log: GroupLog,
        transport: Transport,
        resolver: Resolver,
        metrics: GroupMetrics,
        clock: Clock,
        randomness: Randomness,
        replace_peer: Callable[[PeerId], None],
        site: Mapping[str, Any],
        liveness: Liveness,
        recorder: Recorder | None = None,
    ) -> None:
        self.recorder: Recording = NoRecorder() if recorder is None else recorder
        self._recorded = recorder
        self.settings = settings
        self.log = log
        self.transport = transport
        self.clock = clock
        self.group = log.group
        self._resolver = resolver
        self._metrics = metrics
        self._observer = Observer(self.group, metrics)
        self._next_tell_s = 0.0
        self._randomness = randomness
        self._replace_peer = replace_peer
        self._site = site
        self._events: queue.Queue[Event | _Crash] = queue.Queue(EVENTS_MAX)
        self._pool = ThreadPoolExecutor(BACKGROUND_THREADS, f"onyx-background-{self.group}")
        self._store: ChunkStore | None = None
        self._memory_store = MemoryChunkStore()
        self._store_lock = threading.Lock()
        self._liveness = liveness
        self._background: set[Future[Any]] = set()
        self._executor = Executor(
            str(self.group),
            settings.task.stop_timeout_s,
            self._crash,
            lambda: liveness.beat(Watched.EXECUTOR),
        )
        self._workload = Workload(self, self._executor)
        self._checker = JobChecker(self, self.group, lambda answer: self.post(Answer(answer)))
        self._watch = Watch(
            log, metrics, clock, self.background, settings.telemetry.job_stalled_after_s
        )
        self._timers: list[threading.Timer] = []
        self._state: group.GroupState | None = None
        self._offered = 0
        self._paused = False
        self._ended = False

    # --- running -----------------------------------------------------------------------------

    def run(self, peers: Sequence[PeerId]) -> Left | Restart:
        """Join, work until the end of this incarnation, and say how it ended.

        Raises:
            InvariantViolated: one of its threads has ended.
        """
        unsubscribe: Callable[[], None] | None = None
        try:
            origin = self._connect()
            self._state, actions = group.start(self.group, self._replica_of(origin))
            unsubscribe = self.log.subscribe(origin.position, self._deliver)
            end = self._interpret(actions)
            self.post(Report(loss_reports.pending(self._recorded)))
            self.post(self.peers_event(peers))
            while end is None:
                self._liveness.beat(Watched.GROUP)
                self._tell_traffic()
                self._watch.look(self._workload.runners, self._state.replica, self.permitted())
                event = self._next_event()
                if isinstance(event, _Crash):
                    raise InvariantViolated(event.reason)
                if event is not None:
                    if isinstance(event, Leave):
                        self._end_tasks()
                    end = self._step(event)
            if isinstance(end, Left) and not self._state.connected:
                logger.warning(
                    "left without a word, because ZooKeeper does not answer: others take over when "
                    "this session has expired"
                )
            return end
        except Fenced as error:
            return Restart(str(error))
        finally:
            self._ended = True
            if unsubscribe is not None:
                unsubscribe()
            self._stop()

    def _next_event(self) -> Event | _Crash | None:
        try:
            return self._events.get(timeout=TELL_INTERVAL_S)
        except queue.Empty:
            return None

    def _tell_traffic(self) -> None:
        now_s = self.clock.monotonic_s()
        if now_s >= self._next_tell_s:
            self._next_tell_s = now_s + TELL_INTERVAL_S
            self.log.call(lambda: self._liveness.beat(Watched.LOG))
            self._observer.traffic(self.transport.counters())

    def post(self, event: Event) -> None:
        """Queue an event; from any thread. Waits while the queue is full."""
        self._put(event)

    def peers_event(self, peers: Sequence[PeerId]) -> AddPeers:
        """The event that offers virtual peers at this group's address."""
        self._offered += len(peers)
        site = {**self._site, "address": self.transport.address}
        return AddPeers(tuple(peers), site, self.settings.tags)

    def _crash(self, error: BaseException) -> None:
        self._put(_Crash(f"a thread of the tasks has ended: {describe(error)}"))

    def _put(self, event: Event | _Crash) -> None:
        while not self._ended:
            try:
                self._events.put(event, timeout=POST_PATIENCE_S)
                return
            except queue.Full:
                logger.warning("%d events wait for the group's thread", EVENTS_MAX)

    def leave(self) -> None:
        self.post(Leave())

    def remove_peer(self, peer: PeerId) -> None:
        self.post(RemovePeer(peer))

    @property
    def state(self) -> group.GroupState | None:
        """What it knows; None while it connects."""
        return self._state

    def _connect(self) -> Origin:
        self.log.on_session(self._on_session)
        self.log.register_pulse()
        self.transport.start(self.group, self)
        self.transport.on_room(self._executor.wake)
        self._executor.start()
        return self.log.origin()

    def _replica_of(self, origin: Origin) -> Replica:
        if origin.replica:
            return canonical.decode(origin.replica)
        parameters = self.log.establish({"job-scheduler": self.settings.job_scheduler})
        return Replica(job_scheduler=parameters["job-scheduler"])

    def _step(self, event: Event) -> Left | Restart | None:
        assert self._state is not None
        started_s = self.clock.monotonic_s()
        took_part = self._takes_part(self._state)
        self._state, actions = group.step(self._state, event)
        if self._takes_part(self._state) and not took_part:
            self._tell_joined()
        if isinstance(event, EntryRead):
            seconds = self.clock.monotonic_s() - started_s
            self._observer.applied(event.entry, self._state.replica, seconds)
            loss_reports.heard(self._recorded, event.entry)
        self._observer.observe(self._state.replica, self._state.leaving)
        return self._interpret(actions)

    def _takes_part(self, state: group.GroupState) -> bool:
        """Whether peers of this group are in the cluster."""
        return bool(state.replica.groups_index.get(self.group))

    def _tell_joined(self) -> None:
        settings = self.settings
        logger.info(
            "joined tenancy %s at ZooKeeper %s with %d peers; modules: %s",
            settings.tenancy_id,
            settings.zookeeper.address,
            self._offered,
            ", ".join(settings.modules) or "none",
        )

    def _interpret(self, actions: Sequence[Action]) -> Left | Restart | None:
        effects: list[Effect] = []
        for action in actions:
            match action:
                case Left() | Restart():
                    return action
                case Append(commands, parent):
                    self.log.append(commands, parent)
                case WatchPulse(other):
                    self.log.watch_pulse(other, lambda gone: self.post(PulseGone(gone)))
                case UnwatchPulse(other):
                    self.log.unwatch_pulse(other)
                case RemoveState(job):
                    self._remove_state(job)
                case CheckJob():
                    self._checker.ask(action)
                case ProbePulse(other):
                    self._probe(other)
                case StartPauseTimer(suspension):
                    now_s, timeout_s = self.clock.monotonic_s(), self.log.session_timeout_s
                    delay_s = lease.pause_delay_s(now_s, self.log.confirmed_s(), timeout_s)
                    self._after(delay_s, PauseDue(suspension))
                case StartBackOff():
                    delay_s = 2 * self._randomness.random() * self.settings.log.join_back_off_s
                    self._after(delay_s, BackOffElapsed())
                case Pause():
                    logger.warning("ZooKeeper does not answer: tasks are paused")
                    self._paused = True
                case Resume():
                    logger.info("ZooKeeper answers again and the session lives: tasks go on")
                    self._paused = False
                    self._executor.wake()
                case _:
                    effects.append(action)
        self._workload.apply(effects)
        return None

    def _remove_state(self, job: JobId) -> None:
        def work() -> None:
            try:
                remove(self.state_store(durable=True), job)
            except OnyxError as error:
                logger.warning("the state of job %s could not be removed: %s", job, error)

        self.background(work)

    def _probe(self, other: GroupId) -> None:
        def look() -> None:
            if not self.log.pulse_exists(other):
                self.post(PulseGone(other))

        self.background(look)

    def _after(self, delay_s: float, event: Event) -> None:
        timer = threading.Timer(delay_s, self.post, (event,))
        timer.daemon = True
        timer.start()
        self._timers = [each for each in self._timers if each.is_alive()]
        self._timers.append(timer)

    def _deliver(self, item: Entry | Origin) -> None:
        self._metrics.log_tail(item.position)
        if isinstance(item, Origin):
            self.post(OriginRead(item.position, canonical.decode(item.replica)))
        else:
            self.post(EntryRead(item))

    def _on_session(self, session: Session) -> None:
        if session is Session.LOST:
            self._paused = True
            self._metrics.session_lost()
        self.post(SessionChanged(session))

    def _end_tasks(self) -> None:
        """Before leaving: inputs give their partitions away and outputs close what they write,
        while this group is still the one that may."""
        self._workload.stop()
        self._executor.drain()
        wait(tuple(self._background), BACKGROUND_PATIENCE_S)

    def _stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._workload.stop()
        self._checker.stop()
        self._executor.stop()
        self._liveness.forget(Watched.EXECUTOR, Watched.LOG)
        self.transport.stop()
        self._observer.traffic(self.transport.counters())
        self._observer.close()
        self._watch.close()
        self.log.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def silent_s(self) -> float | None:
        """Seconds for which ZooKeeper has not answered, once the lease has ended; else None."""
        now_s, heard_s = self.clock.monotonic_s(), self.log.confirmed_s()
        held = lease.permitted(now_s, heard_s, self.log.session_timeout_s)
        return None if held else now_s - heard_s

    # --- Handlers of the transport -------------------------------------------------------------

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: U64, values: U64
    ) -> None:
        self._workload.on_acks(job, version, acker, roots, values)

    def on_completions(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: U64, retries_max: int
    ) -> None:
        self._workload.on_completions(job, version, target, roots, retries_max)

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:
        return self._workload.on_query(query)

    # --- Services of the tasks -----------------------------------------------------------------

    def replica(self) -> Replica:
        assert self._state is not None
        return self._state.replica

    def propose(self, peer: PeerId, command: Command) -> None:
        # Here, where the error is the task's: on the group's thread it would end them all.
        payload = encode_entry(command, self.group, SEQUENCE_MAX)
        check_size(command, payload, self.settings.log.entry_bytes_max)
        self.post(Propose(peer, command))

    def permitted(self) -> bool:
        if self._paused or self._ended:
            return False
        return self.silent_s() is None

    def background(self, work: Callable[[], T]) -> Future[T]:
        where = location()

        def located() -> T:
            locate(where)
            return work()

        future = self._pool.submit(located)
        self._background.add(future)
        future.add_done_callback(self._background.discard)
        return future

    def resolve(self, name: str) -> Callable[..., Any]:
        return self._resolver.resolve(name)

    def state_store(self, durable: bool) -> ChunkStore:
        if not durable:
            return self._memory_store
        with self._store_lock:
            if self._store is None:
                self._store = open_store(
                    state_place(self.settings), self.settings.state.group_access
                )
            return self._store

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        return build_input(plugin, context)

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        return build_output(plugin, context)

    def fn_params(self, task: str) -> Sequence[Any]:
        return self.settings.fn_params.get(task, ())

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        self._observer.job_started(job_id, job.name, job.guarantee)
        return self._metrics.task(job.name, task)

    def restart_peer(self, peer: PeerId) -> None:
        self._replace_peer(peer)

    def store_exception(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Keep what killed a job; the first report wins."""
        task, phase, detail = report["task"], report["phase"], report["detail"]
        if self.settings.telemetry.log_failures:
            logger.error("job %s is killed: task %s, %s: %s", job, task, phase, detail)

        def store() -> None:
            try:
                self.log.put_document(
                    job_documents.exception(job), msgspec.json.encode(report), None
                )
            except OnyxError as error:
                logger.error("what killed job %s could not be stored: %s; %s", job, error, detail)

        return self.background(store)
