"""One simulated worker process: real tasks and ackers, stepped by the world.

It sees the log as far as it has heard of it, which may be long ago; what it does in the background
is done when the world says so, even after its death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.sim.windows.columns import OVER_COLUMNS, over_columns
from tests.sim.windows.network import Link
from tests.sim.windows.poison import recording
from tests.sim.windows.storage import DocumentsOf, PlaceOf, Storage
from tests.sim.windows.violation import Violation, not_hidden
from tests.support.operators.ordered import watch_operators

from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.errors import NameNotRegistered
from onyx.flow.batch import Segment, Segments
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, TaskName
from onyx.ledger.returns import Trees
from onyx.model.job import Job
from onyx.peer.work.holding import InFlightReports, holds_for
from onyx.plugins.bases import IndexedReader
from onyx.plugins.job.input import PATH, PartsFeed, PartsReader, at_of
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.parts.formats import JsonLinesFormat
from onyx.plugins.parts.writer import PartsWriter
from onyx.plugins.protocol import Cursor, Input, Output, PluginContext, Reader
from onyx.plugins.rolling import RollLimits
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.requests.mailboxes import MailboxRegistry
from onyx.tables.shared import SharedTables
from onyx.task import machine
from onyx.task.acking.acker import AckerTask
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import sources_of
from onyx.task.kinds import kind_of, new_task
from onyx.task.recovery import state as recovery_of_state
from onyx.task.table import StepOutcome
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
from onyx.telemetry.recorder import Inside, Recording
from onyx.transport.interface import Lookup, Transport

if TYPE_CHECKING:
    from tests.sim.windows.world import World

watch_operators(recovery_of_state)


@dataclass(slots=True, eq=False)
class Work:
    """Something done in the background."""

    process: Process
    do: Callable[[], Any]
    future: Future[Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.do())
        except Exception as error:
            self.future.set_exception(error)


class Process:
    """`Services` of its tasks. Peers are virtual: each works on one task at a time."""

    def __init__(self, world: World, number: int, peers: int) -> None:
        self.world = world
        self.group = GroupId(f"group-{number}")
        self.peers = [PeerId(f"peer-{number}-{index}") for index in range(peers)]
        self.settings = world.settings
        self.clock: Clock = world.clock
        self.mailboxes = MailboxRegistry()
        self.tables = SharedTables(self.background, self.clock)
        self.transport: Transport = Link(world.network, self.group)
        self.recorded = recording(world)
        self.recorder: Recording = self.recorded
        self.deaths: list[Inside] | None = None
        """Who was in user code when the process ended; None while it lives."""
        self.log: Any = DocumentsOf(world.documents, self.group)
        self.tasks: dict[PeerId, Task] = {}
        self.ackers: dict[tuple[AllocationVersion, PeerId], AckerTask] = {}
        self.holding = InFlightReports(
            self.group, self.transport, self.clock, Running(self), raised
        )
        self.heard = len(world.entries)
        self._replica = world.replica
        self._sealed: set[tuple[int, str]] = set()
        self._plugins = 0

    # --- what the world does --------------------------------------------------------------------

    def hear(self) -> bool:
        """The next entry of the log; False when there is none."""
        if self.heard == len(self.world.entries):
            return False
        kind, self._replica = self.world.entries[self.heard]
        self.heard += 1
        if kind == "allocated":
            self._place_ackers()
            self._place_tasks()
        if kind == "ready":
            version = self._version
            owners = Owners(self._replica, self.world.job_id, self._sources())
            for (at, _), acker in self.ackers.items():
                if at == version:
                    acker.ready(owners)
            self._post_all(Ready(version))
        self._seal()
        return True

    def step(self, task: Task) -> bool:
        """One phase of a task; whether something was done."""
        with not_hidden():
            progress = machine.step(task)
        if self.deaths is not None:
            return False
        if progress is StepOutcome.DONE:
            del self.tasks[task.peer]
            self._start(task.peer)
            self._seal()
        return progress is StepOutcome.ADVANCED

    def die(self) -> None:
        for task in self.tasks.values():
            if isinstance(task, BatchTask) and task.wired:
                task.allocation.inbox.close()

    # --- Services -------------------------------------------------------------------------------

    def replica(self) -> Replica:
        return self._replica

    def propose(self, peer: PeerId, command: Command) -> None:
        if self.deaths is None:
            self.world.commit(self, peer, command)

    def permitted(self) -> bool:
        return True

    def background(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.world.works.append(Work(self, work, future))
        return future

    def resolve(self, name: str) -> Callable[..., Any]:
        poisonous = self.world.poisonous
        if name == poisonous + OVER_COLUMNS:
            return over_columns(self.resolve(poisonous))
        if name not in self.world.functions:
            raise NameNotRegistered(f"{name} is not registered")
        found = self.world.functions[name]
        return self.world.poison.guarded(self, found) if name == poisonous else found

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        return Partitions(self.world)

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        self._plugins += 1
        world = self.world
        place = PlaceOf(world.places[context.task], world.faults, self.group, self._plugins)
        return Parts(place, JsonLinesFormat(context), context, world.roll_limits)

    def state_store(self, durable: bool) -> Storage:
        return self.world.storage

    def fn_params(self, task: str) -> Sequence[Any]:
        return ()

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        return NULL_TASK

    def restart_peer(self, peer: PeerId) -> None:
        """A task begins anew on a new peer: here that takes a new process."""
        self.deaths = []

    def store_exception(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        if self.group in self.world.members and self.deaths is None:
            raise Violation(f"U: a task failed: {report}")
        future: Future[None] = Future()
        future.set_result(None)
        return future

    # --- Handlers of the transport ---------------------------------------------------------------

    def on_acks(
        self, job: JobId, version: AllocationVersion, acker: PeerId, roots: Numbers, values: Numbers
    ) -> None:
        found = self.ackers.get((version, acker))
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
        if not retries_max:
            self.world.checks.completed(roots)
        task = self.tasks.get(target)
        if task is not None:
            task.post(trees_message(version, roots, retries_max))

    def on_lookup(self, message: Lookup) -> None:
        runner = self.tasks.get(message.target)
        if runner is not None:
            runner.post(message)

    def on_returns(
        self, job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
    ) -> None:
        if to_acker:
            acker = self.ackers.get((version, target))
            if acker is not None:
                acker.give_back(trees)
            return
        task = self.tasks.get(target)
        if task is not None:
            task.post(ReturnedValues(version, trees))

    def on_held(
        self, job: JobId, version: AllocationVersion, target: PeerId, roots: Numbers
    ) -> None:
        acker = self.ackers.get((version, target))
        if acker is not None:
            acker.holds.add(roots)
        task = self.tasks.get(target)
        if task is not None:
            holds_for(task, version, roots)

    # --- the log's part -------------------------------------------------------------------------

    @property
    def _version(self) -> AllocationVersion:
        return AllocationVersion(self._replica.run(self.world.job_id).allocation_version)

    def _sources(self) -> Any:
        return sources_of(self._replica, self.world.job_id)

    def _place_ackers(self) -> None:
        world, version = self.world, self._version
        for acker in self.ackers.values():
            acker.stopped = True
        mine = [peer for peer in self._replica.run(world.job_id).ackers if peer in self.peers]
        self.ackers = {
            (version, peer): AckerTask(
                self.transport, self.clock, world.job_id, version, _nothing, lambda: 480.0
            )
            for peer in mine
        }

    def _place_tasks(self) -> None:
        for peer in self.peers:
            task = self.tasks.get(peer)
            if task is None:
                self._start(peer)
            elif not task.wanted:
                continue
            elif self._task_of(peer) == task.name:
                task.post(Rewire(self._version))
            else:
                task.post(Stop("peer-reallocated"))

    def _start(self, peer: PeerId) -> None:
        name = self._task_of(peer)
        if name is None:
            return
        job = self.world.job_id
        kind = kind_of(self._replica, job, name)
        self.tasks[peer] = new_task(self, peer, job, name, kind, _nothing)

    def _task_of(self, peer: PeerId) -> TaskName | None:
        allocation = self._replica.run(self.world.job_id).allocation
        return next((task for task, peers in allocation.items() if peer in peers), None)

    def _post_all(self, message: Ready) -> None:
        for task in self.tasks.values():
            task.post(message)

    def _seal(self) -> None:
        """The first peer of each output seals it when all sources are exhausted."""
        job = self.world.job_id
        ended = set(self._replica.run(job).exhausted_inputs)
        if not ended.issuperset(task for task, _ in self._sources()):
            return
        for name in self._replica.spec(job).outputs:
            peer = self._replica.run(job).allocation[name][0]
            task = self.tasks.get(peer)
            if task is not None and task.name == name and (self._version, name) not in self._sealed:
                self._sealed.add((self._version, name))
                task.post(Seal())


PART_SEGMENTS = 5


class Partitions(Input):
    """The source: reports to the checks what has been read."""

    cooperative = True

    def __init__(self, world: World) -> None:
        self._world = world

    def partitions(self) -> Sequence[str]:
        return [str(number) for number in range(len(self._world.story.partitions))]

    def open(self, partition: str, cursor: Cursor) -> Reader:
        number = int(partition)
        if self._world.in_parts:
            return self._open_parts(number, cursor)
        return self._reader(number, 0, len(self._world.story.partitions[number]), cursor)

    def _reader(self, number: int, begin: int, end: int, cursor: Cursor) -> Reader:
        segments = self._world.story.partitions[number][begin:end]

        def fetch(first: int, segments_max: int) -> list[Segment]:
            self._world.opens.before()
            last = min(len(segments), first + segments_max)
            self._world.checks.read(number, begin + last)
            return [dict(segment) for segment in segments[first:last]]

        kind = RowsReader if self._world.in_parts else IndexedReader
        return kind(cursor.position, fetch, lambda: len(segments))

    def _open_parts(self, number: int, cursor: Cursor) -> Reader:
        """The segments lie in parts, as those of another job do: one may refuse to be opened, and
        one that is open may refuse to be read."""
        count = -(-len(self._world.story.partitions[number]) // PART_SEGMENTS)

        def of_part(path: str, at: Cursor) -> Reader:
            self._world.opens.before()
            begin = PART_SEGMENTS * int(path)
            return self._reader(number, begin, begin + PART_SEGMENTS, at)

        def following(part: int) -> tuple[int, list[Segments]] | None:
            return (part, [[{PATH: str(part)}]]) if part < count else None

        parts = JournalReader(_Every(), at_of(cursor).part, following, lambda: count, {})
        return PartsReader(parts, cursor, of_part, cast(PartsFeed, _AllListed()))

    def close(self) -> None: ...


class RowsReader(IndexedReader):
    """Gives dicts where columns may be given too."""

    read_columns = IndexedReader.read


class _Every:
    """A journal with one part a chunk."""

    def first_of(self, position: int) -> int:
        return position


class _AllListed:
    """A feed that has found all parts."""

    obstacle = ""

    def ended(self) -> bool:
        return True


class Parts(PartsWriter):
    """The output: real parts in a place in memory."""

    cooperative = True

    def __init__(
        self, place: PlaceOf, form: JsonLinesFormat, context: PluginContext, limits: RollLimits
    ) -> None:
        super().__init__(place, form, context, limits)  # type: ignore[arg-type]


def _nothing() -> None:
    """The world steps every task anyway."""


def raised(error: BaseException) -> None:
    raise error


class Running:
    """Tasks and ackers of a process, as `InFlightReports` asks for them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def runners(self) -> list[Any]:
        return [SimpleNamespace(task=task) for task in self._process.tasks.values()]

    @property
    def ackers(self) -> Mapping[Any, AckerTask]:
        job = self._process.world.job_id
        return {(job, *key): acker for key, acker in self._process.ackers.items()}
