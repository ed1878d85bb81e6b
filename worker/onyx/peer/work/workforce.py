"""The tasks of one incarnation with all that works for them: threads, services, holds, checks.

What the transport brings for tasks and ackers is only passed on, on its threads: whoever gets it
looks at it when its own thread steps it. `TaskServices` is `task.services.Services`, for real: any
thread of a task may call, and nothing there blocks but opening the state store. What killed a job
is stored beside the log, where every client finds it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.base.runs import Numbers
from onyx.errors import OnyxError, Unavailable
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.log import documents
from onyx.log.append_queue import check_command
from onyx.peer.group import GroupAnswer, Propose
from onyx.peer.life import Life
from onyx.peer.liveness import WatchedThread
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.router.inputs import InputTokens, RequestInputs
from onyx.peer.router.router import NOT_A_MEMBER, RequestRouter
from onyx.peer.work.holding import InFlightReports, holds_for
from onyx.peer.work.job_checker import JobChecker
from onyx.peer.work.measuring import Measuring
from onyx.peer.work.running_tasks import RunningTasks
from onyx.peer.work.task_threads import TaskThreads
from onyx.plugins.registry import build_input, build_output
from onyx.replica.command import Command
from onyx.replica.job_events import TASK_FAILED, local_event
from onyx.replica.state import Replica
from onyx.reports.measures import WorkerDiagnostics
from onyx.requests.request import Answer as RequestAnswer
from onyx.requests.request import Append, answered
from onyx.settings import Settings
from onyx.state.location import open_store, state_location
from onyx.storage.interface import BlobStore, MemoryBlobStore
from onyx.tables.shared import SharedTables
from onyx.task.task import ReturnedValues, StateQuestion, trees_message
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.logs import happened, last_lines
from onyx.transport.interface import Lookup
from onyx.transport.state_queries import DIAGNOSTICS, MEASURES, StateAnswer, StateQuery

if TYPE_CHECKING:
    from onyx.spark.child.request import StageRunner
    from onyx.spark.driver.process import QueryProcess
    from onyx.spark.driver.request import QueryRequest, RunningQuery

logger = logging.getLogger("onyx.peer")
METRICS_CHARACTERS_MAX = 1_000_000
"""The metrics that somebody is given who asks for them."""
_RUN_IN_CHILD: OnDemand[StageRunner] = OnDemand("onyx.spark.child.runner:run_in_child")
_QUERY_PROCESS: OnDemand[type[QueryProcess]] = OnDemand("onyx.spark.driver.process:QueryProcess")


class Workforce:
    """Start it before the log is read; `stop` it when the incarnation ends."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        self._life = life
        context, group, crashed = life.context, life.group, life.events.crash
        self._liveness = context.liveness
        self._threads = TaskThreads(
            group,
            context.settings.task.stop_timeout_s,
            crashed,
            lambda: context.liveness.beat(WatchedThread.TASKS),
        )
        self.services = TaskServices(life, replica)
        self.tasks = RunningTasks(group, self.services, self._threads)
        requests = AnsweredRequests(context.metrics)
        self.measuring = Measuring(
            group, context.clock, life.background.aside, requests, life.log.traffic
        )
        self.checker = JobChecker(
            self.services, group, lambda answer: life.events.post(GroupAnswer(answer))
        )
        self._router = RequestRouter(
            RequestInputs(replica, life.log, context.clock),
            life.mailboxes,
            life.transport,
            life.background.run,
            context.randomness,
            group,
            context.current_router.loop,
            context.resolver.resolve,
            partial(self.services.state_store, durable=True),
            context.clock,
            InputTokens(context.settings, context.clock),
            requests,
        )
        self._current_router = context.current_router
        self._receives = False
        self._holding = InFlightReports(group, life.transport, context.clock, self.tasks, crashed)

    def start(self) -> None:
        """Take what the transport brings, and run the tasks that are given from now on."""
        handlers = TransportHandlers(
            self.tasks, self._append, self.measuring, self._life.context.metrics
        )
        self._life.transport.start(self._life.group, handlers)
        self._life.transport.on_room(self._threads.wake)
        self._threads.start()
        self._holding.start()

    def receive(self) -> None:
        """Take requests of clients from now on: this process has read which jobs there are, and
        takes part in the cluster."""
        self._receives = True
        self._current_router.open(self._router)

    def _append(self, append: Append) -> Future[RequestAnswer]:
        return self._router.append(append) if self._receives else answered(NOT_A_MEMBER)

    def drain(self) -> None:
        """Before leaving: inputs return their partitions and outputs close what they write, while
        the pulse of this group still lets them."""
        self.tasks.stop()
        self._threads.drain()

    def stop(self) -> None:
        """The incarnation has ended: end all tasks, and answer nothing any more."""
        self.tasks.stop()
        self._current_router.close(self._router)
        self._router.stop()
        self._holding.stop()
        self._threads.stop()
        self._liveness.forget(WatchedThread.TASKS)


# --- what the transport brings ------------------------------------------------------------------


class TransportHandlers:
    """Implements the transport's `Handlers`."""

    def __init__(
        self,
        tasks: RunningTasks,
        append: Callable[[Append], Future[RequestAnswer]],
        measuring: Measuring,
        metrics: GroupMetrics,
    ) -> None:
        """`append` routes the requests of clients."""
        self._tasks = tasks
        self._measuring, self._metrics = measuring, metrics
        self.on_append = append

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: Numbers, values: Numbers
    ) -> None:
        """Acks for an acker of this group: columns of roots and of the values to XOR into them.
        Acks for an acker that is not here are dropped: replay covers them."""
        found = self._tasks.acking.get(job, version, acker)
        if found is not None:
            found.post(roots, values)

    def on_completions(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> None:
        """Trees that are complete (`retries_max` 0), or that a flow condition asks to be read
        again, at most so many times."""
        runner = self._tasks.runner(target, job)
        if runner is not None:
            runner.task.post(trees_message(version, roots, retries_max))

    def on_held(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: Numbers
    ) -> None:
        """Somebody works on these trees, for the input that began them or their acker."""
        acker = self._tasks.acking.get(job, version, target)
        if acker is not None:
            acker.holds.add(roots)
        runner = self._tasks.runner(target, job)
        if runner is not None:
            holds_for(runner.task, version, roots)

    def on_returns(
        self, job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
    ) -> None:
        """What functions give back for trees, for an acker or an input."""
        if to_acker:
            acker = self._tasks.acking.get(job, version, target)
            if acker is not None:
                acker.give_back(trees)
            return
        runner = self._tasks.runner(target, job)
        if runner is not None:
            runner.task.post(ReturnedValues(version, trees))

    def on_lookup(self, message: Lookup) -> None:
        """A task asks for states, or is answered. Who is not here is asked again."""
        runner = self._tasks.runner(message.target, message.job)
        if runner is not None:
            runner.task.post(message)

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:
        """A client asks for the state of a window, or for what this worker measures and logs."""
        answer: Future[StateAnswer] = Future()
        if query.state in (MEASURES, DIAGNOSTICS):
            try:
                if query.state == MEASURES:
                    document: object = self._measuring.document(query.job or None)
                else:
                    text = self._metrics.text()[:METRICS_CHARACTERS_MAX]
                    document = WorkerDiagnostics(tuple(last_lines(query.job)), text)
                answer.set_result(StateAnswer(msgspec.json.encode(document), more=False))
            except Unavailable as error:
                answer.set_exception(error)
            return answer
        runner = self._tasks.runner(query.peer, query.job)
        if runner is None:
            answer.set_exception(Unavailable(f"peer {query.peer} does not work on the job now"))
        else:
            runner.task.post(StateQuestion(query, answer))
        return answer


# --- what tasks ask of their process ------------------------------------------------------------


class TaskServices:
    """Implements `task.services.Services`."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        context = life.context
        self.settings = context.settings
        self.clock = context.clock
        self.recorder = context.recording
        self.mailboxes = life.mailboxes
        self.log = life.log
        self.transport = life.transport
        self.permitted = life.lease.permitted
        self.background = life.background.run
        self.aside = life.background.aside
        self.tables = SharedTables(life.background.aside, context.clock)
        self.replica = replica
        self.resolve = context.resolver.resolve
        self.restart_peer = life.replace_peer
        self.build_input = build_input
        self.build_output = build_output
        self.state_store = StateStores(context.settings).store
        self.metrics = life.telemetry.of_task
        self.store_exception = ExceptionReports(life).store
        self._life = life

    def propose(self, peer: PeerId, command: Command) -> None:
        """Write to the log on behalf of a peer of this group, while it belongs to the cluster. The
        size is checked here, where the error is the task's: raised on the group's thread it would
        end all tasks."""
        check_command(command, self.log.group, self.settings.log.entry_bytes_max)
        self._life.events.post(Propose(peer, command))

    @property
    def stage_runner(self) -> StageRunner:
        """Runs stages of Spark."""
        return _RUN_IN_CHILD.load()

    def start_query(self, request: QueryRequest, wake: Callable[[], None]) -> RunningQuery:
        """Start the process that runs a job on Spark. Raises SettingsError and Unavailable."""
        return _QUERY_PROCESS.load()(request, wake)

    def fn_params(self, task: str) -> Sequence[Any]:
        """Leading arguments of the task's function that the worker was started with."""
        return self.settings.fn_params.get(task, ())


class StateStores:
    """The stores of one incarnation. Any thread of a task may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._durable: BlobStore | None = None
        self._memory = MemoryBlobStore()
        self._lock = threading.Lock()

    def store(self, durable: bool) -> BlobStore:
        """The store that other processes find, or the one of this process only.

        Raises:
            UserError: it cannot be opened.
        """
        if not durable:
            return self._memory
        # Opened under the lock: two tasks that start together would open it twice.
        with self._lock:
            if self._durable is None:
                location = state_location(self._settings)
                self._durable = open_store(location, self._settings.state.group_access)
            return self._durable


class ExceptionReports:
    """The reports of one incarnation. Any thread of a task may call."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def store(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Store what killed a job; the first report wins."""
        task, phase, detail = report["task"], report["phase"], report["detail"]
        if self._life.context.settings.telemetry.log_failures:
            happened(local_event(TASK_FAILED, job, task=task, phase=phase, why=detail))

        def store() -> None:
            said = {key: value for key, value in report.items() if key != "batch"}
            batch, log = report.get("batch"), self._life.log
            try:
                path, data = documents.exception(job), msgspec.json.encode(said)
                is_first = log.put_document(path, data, None) is not None
                if is_first and batch is not None:
                    path, data = documents.failed_batch(job), msgspec.json.encode(batch)
                    log.put_document(path, data, None)
            except OnyxError as error:
                logger.error("what killed job %s could not be stored: %s; %s", job, error, detail)

        return self._life.background.run(store)
