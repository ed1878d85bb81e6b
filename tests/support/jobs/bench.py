"""A job on a bench: its real tasks, stepped by hand, with a log in memory and time that jumps.

The tasks, ackers, transport, log and plugins are the real ones. The bench stands in for the peer
group: it answers what tasks write to the log as the replica would, at once and in order. Nothing
runs on a thread, so every test sees the same steps each time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
from immutables import Map
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.log.runs import altered
from tests.support.operators.ordered import watch_operators
from tests.support.spark.windows import run_plan

from onyx.base.runs import Numbers
from onyx.client.submissions import submission
from onyx.errors import NameNotRegistered, OnyxError
from onyx.flow.batch import Segment
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Position, Slot, TaskName
from onyx.ledger.returns import Trees
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping, to_mapping
from onyx.peer.work.holding import InFlightReports, holds_for
from onyx.plugins.protocol import Cursor, Input, MeasuredInput, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.plugins.starting import first_cursor
from onyx.program.phases import Phase
from onyx.replica.command import Command
from onyx.replica.commands import (
    ExhaustInput,
    KillJob,
    PauseJob,
    RegisterPartitions,
    ReportLoss,
    RestartTask,
    ResumeJob,
    SealOutput,
    SetOptions,
    SignalFailing,
    SignalReady,
    SignalRest,
)
from onyx.replica.commands.set_options import TaskOptions
from onyx.replica.commands.signal_ready import ReadyPeers
from onyx.replica.jobs import restless
from onyx.replica.spec import JobSpec
from onyx.replica.spec_of_job import DRIVER
from onyx.replica.state import JobRecord, JobRun, Partitions, Replica
from onyx.requests.mailboxes import MailboxRegistry
from onyx.rights import of_its_author
from onyx.settings import Settings
from onyx.spark.driver.request import QueryBatch, QueryProgress, QueryReply, QueryRequest
from onyx.storage.interface import MemoryBlobStore
from onyx.tables.shared import SharedTables
from onyx.task import machine
from onyx.task.acking.acker import AckerTask
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import Site
from onyx.task.kinds import kind_of, new_task
from onyx.task.recovery import state as recovery_of_state
from onyx.task.table import LOOP_END, StepOutcome
from onyx.task.task import (
    BatchTask,
    Ready,
    ReturnedValues,
    Rewire,
    Seal,
    Stop,
    Task,
    trees_message,
)
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.telemetry.recorder import NoRecorder, Recording
from onyx.transport.interface import Lookup
from onyx.transport.local import LocalTransport

JOB = JobId("job-1")
GROUP = GroupId("group-1")
watch_operators(recovery_of_state)
MOMENT_S = 0.01
"""Between two rounds when nothing can be done."""
ROUNDS_MAX = 5_000


class Kept:
    """An output that keeps what it is given and makes it durable on `flush`, or when asked to."""

    cooperative = True

    def __init__(self, bench: Bench, task: str) -> None:
        self.written: list[Segment] = []
        self.batches: list[str] = []
        """Whether each batch came as `dicts` or as `columns`."""
        self.calls: list[str] = []
        self.durable_count = 0
        self._bench = bench
        self.flushes = True
        bench.outputs[task].append(self)

    def write(self, segments: list[Segment]) -> None:
        self.written += segments
        self.batches.append("dicts")

    def write_columns(self, columns: pa.RecordBatch) -> None:
        self.written += columns.to_pylist()
        self.batches.append("columns")

    def durable(self) -> int:
        return self.durable_count

    def flush(self) -> None:
        self.calls.append("flush")
        if self.flushes:
            self.durable_count = len(self.written)

    def tick(self) -> None: ...

    def fence(self, live: Sequence[GroupId]) -> None:
        self.calls.append("fence")

    def seal(self) -> None:
        self.calls.append("seal")
        if self._bench.seal_failures:
            self._bench.seal_failures -= 1
            raise self._bench.seal_error

    def close(self) -> None:
        self.calls.append("close")


class Watched(Input):
    """The input it wraps, with a note of where it was opened and whether it was closed."""

    def __init__(self, bench: Bench, inner: Input) -> None:
        self._inner = inner
        self.cooperative = inner.cooperative
        self.wakes = inner.wakes
        self.opened: list[int] = []
        self.closed = False
        bench.inputs.append(self)

    def partitions(self) -> Sequence[str]:
        return self._inner.partitions()

    def start(self, partition: str) -> Cursor | None:
        return first_cursor(self._inner, partition)

    def open(self, partition: str, cursor: Any) -> Any:
        self.opened.append(cursor.position)
        return self._inner.open(partition, cursor)

    def behind(self, cursors: Any) -> Any:
        return self._inner.behind(cursors) if isinstance(self._inner, MeasuredInput) else {}

    def describe(self, partition: str, position: int) -> str:
        return self._inner.describe(partition, position)

    def column_types(self) -> Any:
        return self._inner.column_types()

    def close(self) -> None:
        self.closed = True
        self._inner.close()


class ScriptedQuery:
    """A query that a test lets report and end (`spark.driver.request.RunningQuery`)."""

    def __init__(self, request: QueryRequest) -> None:
        self.request = request
        self.progress: QueryProgress | None = None
        self.answer: QueryReply | OnyxError | None = None
        self.batch: QueryBatch | None = None
        self.published_batches: list[int] = []
        self.ended = False

    def published(self, number: int) -> None:
        self.batch = None
        self.published_batches.append(number)

    def reply(self) -> QueryReply | None:
        if isinstance(self.answer, OnyxError):
            raise self.answer
        return self.answer

    def end(self, then: Callable[[], None] | None = None) -> None:
        self.ended = True
        if then is not None:
            then()


class Bench:
    """`Services` of every task of one job, and the hand that steps them."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]] | None = None,
        peers: Mapping[str, int] | None = None,
        seal_failures: int = 0,
        settings: Settings | None = None,
        short_circuit: bool = True,
        after: Bench | None = None,
    ) -> None:
        """`spec` is that of the manifest; `peers` how many each task has, 1 if not said. `after`:
        the job in whose place this one comes; it is stepped no more."""
        self.id = JOB if after is None else JobId(f"{after.id}-2")
        manifest = {
            "apiVersion": "onyx.dev/v1beta1",
            "kind": "OnyxJob",
            "metadata": {"name": "bench"},
            "spec": spec,
        }
        self.job = parse_mapping(manifest)
        self.settings = of_its_author(settings or Settings())
        self.clock = ManualClock()
        self.recorder: Recording = NoRecorder()
        self.transport = LocalTransport(short_circuit)
        self.transport.start(GROUP, self)
        if after is None:
            self.log = MemoryLog().group(GROUP)
            self.log.register_pulse()
        else:
            self.log = after.log
        self._functions = functions or {}
        self.seal_failures = seal_failures
        self.seal_error: Exception = OSError("disk full")
        self.outputs: dict[str, list[Kept]] = defaultdict(list)
        self.inputs: list[Watched] = []
        self.proposed: list[Command] = []
        self.exceptions: list[Mapping[str, Any]] = []
        self.restarted: list[PeerId] = []
        self.allowed = True
        self.slow: list[tuple[Future[Any], Callable[[], Any]]] | None = None
        """When a list, background work waits here until `finish_slow`."""
        self.trace: dict[str, list[Phase]] = defaultdict(list)
        self.queries: list[ScriptedQuery] = []
        self.stage_runner = run_plan
        self.mailboxes = MailboxRegistry()
        self.tables = SharedTables(self.background, self.clock)
        tasks = [each.name for each in self.job.catalog if each.type != "table"]
        named = [DRIVER] if self.job.engine == "spark" else tasks
        self._counts = {name: (peers or {}).get(name, 1) for name in named}
        digest = self.log.put_chunk(msgspec.json.encode(to_mapping(self.job), order="sorted"))
        self._spec = self._spec_of(submission(self.id, self.job, digest, "balanced").spec)
        submitted = Replica(records=Map({self.id: JobRecord(self._spec, run=JobRun())}))
        if after is not None:
            before = after.replica()
            ended = {
                id: msgspec.structs.replace(each, run=None) for id, each in before.records.items()
            }
            record = JobRecord(self._spec, upgrades=after.id, run=JobRun())
            submitted = Replica(records=Map({**ended, self.id: record}))
        self._replica = self._allocated(submitted, 1)
        self._ready: set[PeerId] = set()
        self._exhausted: dict[str, set[int]] = defaultdict(set)
        self._pauses = 0
        self.sealed: set[str] = set()
        self.store = MemoryBlobStore() if after is None else after.store
        self.tasks: dict[PeerId, Task] = {}
        self._add_peers()
        self.acker = self._new_acker()
        self.holding = InFlightReports("bench", self.transport, self.clock, self, raised)

    # --- what a test does -----------------------------------------------------------------------

    def task(self, name: str, index: int = 0) -> Task:
        return self.tasks[self._peers(name)[index]]

    def step(self, task: Task) -> StepOutcome:
        """One phase of a task, noted in `trace` by the name of the task when it was done."""
        phase = task.phase
        progress = machine.step(task)
        if progress is StepOutcome.ADVANCED:
            self.trace[task.name].append(phase)
        return progress

    def round(self, names: Iterable[str] | None = None) -> bool:
        """Step every task (of these names) once, then the acker; whether anything was done."""
        chosen = [each for each in self.tasks.values() if names is None or each.name in names]
        done = [self.step(task) is StepOutcome.ADVANCED for task in chosen]
        return any([*done, self.acker.advance() is StepOutcome.ADVANCED])

    def settle(self, names: Iterable[str] | None = None) -> None:
        """Rounds until nothing is done any more, ten times in a row (acks go out when idle), each
        of these a moment after the other."""
        idle = 0
        for _ in range(ROUNDS_MAX):
            idle = 0 if self.round(names) else idle + 1
            self.clock.advance(MOMENT_S if idle else 0.0)
            if idle == 10:
                return
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds")

    def start(self) -> None:
        """Until every task is in its loop: no input has read anything yet."""
        tasks = self.tasks.values()
        self.until(lambda: all(_between_batches(task) and not task.mail for task in tasks))

    def until(self, condition: Callable[[], bool]) -> None:
        """Step each task that is not in its loop yet or has a message until this holds."""
        for _ in range(ROUNDS_MAX):
            if condition():
                return
            for task in self.tasks.values():
                if task.mail or not _between_batches(task):
                    self.step(task)
        raise AssertionError({task.name: task.phase for task in self.tasks.values()})

    def rewire(self, **counts: int) -> None:
        """A new allocation version, with so many peers for the tasks named."""
        self._counts.update(counts)
        gone = [p for p in self.tasks if p not in self._all_peers()]
        version = self._replica.run(self.id).allocation_version + 1
        self._replica = self._allocated(self._replica, version)
        self._ready.clear()
        self.acker.stopped = True
        self.acker = self._new_acker()
        for peer in gone:
            self.tasks[peer].post(Stop("peer-reallocated"))
        for peer in self._all_peers():
            if peer in self.tasks:
                self.tasks[peer].post(Rewire(AllocationVersion(version)))
        self._add_peers()

    def crash(self, task: Task) -> None:
        """A peer dies, and another one takes its place in a new allocation version."""
        task.stop = Stop("peer-left")
        peer = task.peer
        if isinstance(task, BatchTask) and task.wired:
            task.allocation.inbox.close()
        del self.tasks[peer]
        self.rewire()

    def replace_groups(self, *groups: str) -> None:
        """The log says that others are there now; what follows from it comes later."""
        alive = tuple(GroupId(group) for group in groups)
        self._replica = msgspec.structs.replace(self._replica, groups=alive)

    def drain(self) -> None:
        """The log says that the job is to read nothing new."""
        self._replica = altered(self._replica, self.id, draining=True)

    def pause(self) -> None:
        """The log says that the job is to come to rest."""
        self._pauses += 1
        self._replica = PauseJob(job=self.id).apply(self._replica, Position(self._pauses))

    def resume(self) -> None:
        """The log says that the job goes on."""
        self._replica = ResumeJob(job=self.id).apply(self._replica, Position(0))

    @property
    def rests(self) -> bool:
        """Whether all sources have signalled that they are at rest."""
        return not restless(self._replica, self.id)

    def set_options(self, declares: str = "", **tasks: Mapping[str, int]) -> None:
        """The log says that tasks work with other values."""
        values = {TaskName(name): TaskOptions.of(each) for name, each in tasks.items()}
        command = SetOptions(job=self.id, tasks=values, declares=declares)
        self._replica = command.apply(self._replica, Position(0))

    def stop(self, task: Task, reason: str = "job-killed") -> StepOutcome:
        task.post(Stop(reason))
        return machine.step(task)

    def take_away(self, task: Task) -> None:
        """The newest replica has the peer no longer on the task, which has no message yet."""
        left = self._replica.run(self.id).allocation.set(task.name, ())
        self._replica = altered(self._replica, self.id, allocation=left)

    def finish_slow(self) -> None:
        waiting, self.slow = self.slow or [], None
        for future, work in waiting:
            future.set_result(work())

    def written(self, task: str) -> list[Segment]:
        return [segment for output in self.outputs[task] for segment in output.written]

    def proposals(self, fn: str) -> list[Command]:
        return [command for command in self.proposed if fn == command.NAME]

    def killed(self) -> list[str]:
        """The job, as often as a task has asked for its end."""
        return [command.job for command in self.proposed if isinstance(command, KillJob)]

    @property
    def completed(self) -> bool:
        ended = set(self._replica.run(self.id).exhausted_inputs) >= set(self._sources())
        return ended and self.sealed == set(self._spec.outputs)

    # --- Services -------------------------------------------------------------------------------

    def replica(self) -> Replica:
        return self._replica

    def propose(self, peer: PeerId, command: Command) -> None:
        self.proposed.append(command)
        match command:
            case RegisterPartitions():
                self._register(command)
            case SignalReady(jobs=(ReadyPeers(version=self._version),)):
                self._ready.add(peer)
                if self._ready == set(self._all_peers()):
                    self._all_ready()
            case ExhaustInput():
                self._exhaust(command.task, command.partitions)
            case SealOutput():
                self.sealed.add(command.task)
            case RestartTask() | ReportLoss() | SignalFailing() | SignalRest():
                self._replica = command.apply(self._replica, Position(0))

    def permitted(self) -> bool:
        return self.allowed

    def background(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if self.slow is not None:
            self.slow.append((future, work))
            return future
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        return future

    def resolve(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            raise NameNotRegistered(f"{name} is not registered")
        return self._functions[name]

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        return Watched(self, build_input(plugin, context))

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        return Kept(self, context.task) if plugin == "blackhole" else build_output(plugin, context)

    def aside(self, work: Callable[[], Any]) -> Future[Any]:
        return self.background(work)

    def start_query(self, request: QueryRequest, wake: Callable[[], None]) -> ScriptedQuery:
        self.queries.append(ScriptedQuery(request))
        return self.queries[-1]

    def state_store(self, durable: bool) -> MemoryBlobStore:
        return self.store

    def fn_params(self, task: str) -> Sequence[Any]:
        return ()

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        return NULL_TASK

    def restart_peer(self, peer: PeerId) -> None:
        self.restarted.append(peer)

    def store_exception(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        self.exceptions.append(report)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    # --- Handlers of the transport ---------------------------------------------------------------

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: Numbers, values: Numbers
    ) -> None:
        if version == self._version:
            self.acker.post(roots, values)

    def on_completions(
        self,
        job: JobId,
        version: AllocationVersion,
        target: PeerId,
        roots: Numbers,
        retries_max: int,
    ) -> None:
        self.tasks[target].post(trees_message(version, roots, retries_max))

    def on_lookup(self, message: Lookup) -> None:
        self.tasks[message.target].post(message)

    def on_returns(
        self, job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
    ) -> None:
        if to_acker:
            self.acker.give_back(trees)
        else:
            self.tasks[target].post(ReturnedValues(version, trees))

    def on_held(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: Numbers
    ) -> None:
        if version == self._version and target == self._all_peers()[0]:
            self.acker.holds.add(roots)
        holds_for(self.tasks[target], version, roots)

    @property
    def runners(self) -> list[Any]:
        return [SimpleNamespace(task=task) for task in self.tasks.values()]

    @property
    def ackers(self) -> Mapping[Any, AckerTask]:
        return {(self.id, AllocationVersion(self._version), self._all_peers()[0]): self.acker}

    # --- the replica's part ----------------------------------------------------------------------

    @property
    def _version(self) -> int:
        return self._replica.run(self.id).allocation_version

    def _peers(self, task: str) -> list[PeerId]:
        return [PeerId(f"{task}-{index}") for index in range(self._counts[task])]

    def _all_peers(self) -> list[PeerId]:
        return [peer for task in self._counts for peer in self._peers(task)]

    def _allocated(self, replica: Replica, version: int) -> Replica:
        peers = self._all_peers()
        allocation = Map({TaskName(task): tuple(self._peers(task)) for task in self._counts})
        slots = Map(
            {
                task: Map({peer: Slot(slot) for slot, peer in enumerate(members)})
                for task, members in allocation.items()
            }
        )
        return msgspec.structs.replace(
            replica,
            groups=(GROUP,),
            groups_index=Map({GROUP: tuple(peers)}),
            groups_reverse_index=Map(dict.fromkeys(peers, GROUP)),
            jobs=(self.id,),
            records=altered(
                replica,
                self.id,
                allocation=allocation,
                slots=slots,
                ackers=(peers[0],),
                allocation_version=version,
                rested=Map(),
            ).records,
        )

    def _add_peers(self) -> None:
        for name in self._counts:
            for peer in self._peers(name):
                if peer not in self.tasks or not self.tasks[peer].wanted:
                    kind = kind_of(self._replica, self.id, TaskName(name))
                    self.tasks[peer] = new_task(self, peer, self.id, TaskName(name), kind, _nothing)

    def _spec_of(self, spec: JobSpec) -> JobSpec:
        """What the log would be given; for tests that leave a part of it out."""
        return spec

    def _sources(self) -> tuple[TaskName, ...]:
        return self._spec.sources

    def _new_acker(self) -> AckerTask:
        version = AllocationVersion(self._version)
        return AckerTask(self.transport, self.clock, self.id, version, _nothing, lambda: 480.0)

    def _register(self, command: RegisterPartitions) -> None:
        known = self._replica.partitions(self.id)
        if command.task in known:
            return
        first = sum(each.count for each in known.values())
        found = Partitions(first, command.count, command.digest or "")
        record = self._replica.records[self.id]
        record = msgspec.structs.replace(record, partitions=known.set(command.task, found))
        records = self._replica.records.set(self.id, record)
        self._replica = msgspec.structs.replace(self._replica, records=records)

    def _all_ready(self) -> None:
        sources = tuple(
            (task, tuple(Site(peer, GROUP) for peer in self._peers(task)))
            for task in self._sources()
        )
        record = self._replica.records[self.id]
        record = msgspec.structs.replace(record, ready_version=self._version)
        records = self._replica.records.set(self.id, record)
        self._replica = msgspec.structs.replace(self._replica, records=records)
        self.acker.ready(Owners(self._replica, self.id, sources))
        for peer in self._all_peers():
            self.tasks[peer].post(Ready(AllocationVersion(self._version)))

    def _exhaust(self, task: TaskName, numbers: Iterable[int] | None) -> None:
        partitions = self._replica.partitions(self.id)
        self._exhausted[task].update(() if numbers is None else numbers)
        ended = {
            name: None
            for name in partitions
            if len(self._exhausted[name]) == partitions[name].count
        }
        ended |= {} if numbers is not None else {task: None}
        self._replica = altered(self._replica, self.id, exhausted_inputs=Map(ended))
        for each in self._spec.tasks:
            if each.output and set(each.fed_by or self._sources()) <= set(ended):
                self.tasks[self._peers(each.name)[0]].post(Seal())


def _nothing() -> None:
    """The bench steps every task anyway."""


def chain(
    segments: Sequence[Segment],
    fn: str | None = None,
    batch_size: int = 3,
    read: Mapping[str, Any] | None = None,
    work: Mapping[str, Any] | None = None,
    partitions: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    """read -> work -> write, with more keys for the two tasks and for the job."""
    function = {"fn": fn} if fn is not None else {"fn": "m:same"}
    options = {"segments": list(segments), "partitions": partitions}
    return {
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [
            {
                "name": "read",
                "type": "input",
                "plugin": "sequence",
                "batchSize": batch_size,
                "options": options,
                **(read or {}),
            },
            {
                "name": "work",
                "type": "function",
                "batchSize": batch_size,
                **function,
                **(work or {}),
            },
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": batch_size},
        ],
        **spec,
    }


def _between_batches(task: Task) -> bool:
    """Whether it is where its loop begins."""
    return task.phase is task.successors[LOOP_END]


def raised(error: BaseException) -> None:
    raise error
