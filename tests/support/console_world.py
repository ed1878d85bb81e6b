"""A cluster for tests of the console: a log in memory with workers, jobs of each kind of trouble,
and what workers report. `python -m tests.support.console_world` shows it in a browser."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from tests.support.log.memory_log import MemoryLog

from onyx.client.client import Client
from onyx.client.deaths import report_death
from onyx.client.window_view import Question, WindowView
from onyx.codec.entries import encode_entry
from onyx.console.actions import Actions
from onyx.console.append_page import Append, SegmentAppends
from onyx.console.ask_page import Answerer
from onyx.console.board import Past, Reporter
from onyx.console.pages import Console
from onyx.console.serve import ConsoleOptions, serving
from onyx.errors import Unavailable
from onyx.ids import JobId, Position, TaskName
from onyx.keystate.extents import Extent
from onyx.log import documents
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.replica.command import Command
from onyx.replica.commands import (
    AcceptJoinCluster,
    AddVirtualPeer,
    ExhaustInput,
    GroupLeaveCluster,
    KillJob,
    NotifyJoinCluster,
    PrepareJoinCluster,
    RegisterPartitions,
    SealOutput,
    SuspendJob,
)
from onyx.replica.commands.signal_ready import signal
from onyx.reports.deaths import Death, DeathCause
from onyx.reports.measures import (
    Durations,
    EdgeMeasures,
    InputMeasures,
    Measures,
    PartitionMeasures,
    PeerMeasures,
    StateMeasures,
    TaskMeasures,
    WorkerMeasures,
    ZooKeeperMeasures,
)
from onyx.reports.outcomes import OutcomeReport, TaskTotals
from onyx.reports.stalls import Reason, StackFrame, Stall
from onyx.settings import Settings

HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"
UNMEASURED = Measures()
NOW_MS = 1_900_000_000_000
SPEC: Mapping[str, Any] = {
    "workflow": [
        ["orders", "clean"], ["clean", "enrich"], ["enrich", "totals"], ["totals", "store"],
        ["enrich", "alerts"], ["clean", "rejected"],
    ],
    "catalog": [
        {"name": "orders", "type": "input", "plugin": "generator", "options": {"segments": 1}},
        {"name": "clean", "type": "function", "fn": "shop:clean", "deadLetter": "rejected"},
        {"name": "enrich", "type": "function", "fn": "shop:enrich"},
        {"name": "totals", "type": "function", "fn": "shop:totals", "groupByKey": "customer",
         "fluxPolicy": "continue"},
        {"name": "store", "type": "output", "plugin": "stdout"},
        {"name": "alerts", "type": "output", "plugin": "stdout"},
        {"name": "rejected", "type": "output", "plugin": "stdout"},
    ],
    "flowConditions": [
        {"from": "enrich", "to": ["totals"], "predicate": "shop:is_order"},
        {"from": "enrich", "to": ["alerts"], "predicate": [">", "amount", 1000]},
    ],
}  # fmt: skip


def answered(question: Question, _: float) -> WindowView:
    """What a state holds: a short one, and one that says all that is hostile."""
    extents = (
        Extent("ada", NOW_MS, NOW_MS + 60_000, {"spent": 7}),
        Extent(HOSTILE, NOW_MS, NOW_MS + 60_000, "x" * 100_000),
    )
    return WindowView(question.job, "totals", question.window, extents, True, True)


def nobody_answers(*_: object) -> Any:
    """No worker can be asked for a state."""
    raise Unavailable("no worker answers")


STATEFUL = [
    {**each, "state": {"spent": "value[int]"}, "deduplicate": False}
    if each["name"] == "totals"
    else each
    for each in SPEC["catalog"]
]
"""A catalog with a state by key."""

ASKED = [
    {"name": "orders", "type": "input", "plugin": "requests"} if each["name"] == "orders" else each
    for each in SPEC["catalog"]
]
"""A catalog whose input takes requests."""


def manifest(name: str, spec: Mapping[str, Any] = SPEC, **more: Any) -> dict[str, Any]:
    """A manifest of a job."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {**spec, **more},
    }


class _DatedLog:
    """A client's log whose entries are as old as the test says."""

    def __init__(self, memory: MemoryLog, at_ms: Callable[[], int]) -> None:
        self._memory, self._log, self._at_ms = memory, memory.client(), at_ms

    def append(self, command: Command, by: str = "", writer: str = "") -> Position:
        return self._memory.append_raw(encode_entry(command, writer, by=by, at_ms=self._at_ms()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class ConsoleWorld:
    """A cluster whose log is in memory. Its entries are some seconds apart."""

    def __init__(self) -> None:
        self.memory = MemoryLog()
        self.now_ms = NOW_MS
        self.at_ms = -7_200_000
        self.clock_s = 0.0
        self.log: Any = _DatedLog(self.memory, self._dated)
        self.client = Client(self.log, "balanced", by="command:ada@laptop")

    def _dated(self) -> int:
        self.at_ms = min(self.at_ms + 17_000, -60_000)
        return self.now_ms + self.at_ms

    def put(self, *commands: Command, by: str = "", writer: str = "") -> None:
        """Write to the log."""
        for each in commands:
            self.log.append(each, by, writer)

    def join(self, *groups: str, peers: int = 4, tags: Sequence[str] = (), code: str = "") -> None:
        """Workers join."""
        for group in groups:
            self.put(PrepareJoinCluster(joiner=group))
            replica = self.client.replica()
            if group not in replica.groups:
                self.put(NotifyJoinCluster(observer=group))
                replica = self.client.replica()
                watcher = next(w for w, joiner in replica.accepted.items() if joiner == group)
                self.put(
                    AcceptJoinCluster(
                        observer=group,
                        subject=replica.pairs.get(watcher, watcher),
                        accepted_observer=watcher,
                        accepted_joiner=group,
                    )
                )
            site = {"address": f"10.0.0.{len(replica.groups) + 1}:6000"}
            if code:
                site["code"] = code
            for number in range(peers):
                peer = f"{group[:8]}-{number}"
                added = AddVirtualPeer(id=peer, group_id=group, peer_site=site, tags=tuple(tags))
                self.put(added)

    def leave(self, group: str) -> None:
        """A worker is declared dead."""
        self.put(GroupLeaveCluster(id=group))

    def submit(self, name: str, id: str = "", **more: Any) -> JobId:
        """A job is submitted, and its peers are ready if there are some."""
        if id:
            more["metadata"] = {"jobId": id}
        job = self.client.submit(parse_mapping(manifest(name, **more))).job
        self.ready(job)
        return job

    def ready(self, job: JobId) -> None:
        """All peers of a job signal that they are ready."""
        run = self.client.replica().run(job)
        peers = tuple(peer for its in run.allocation.values() for peer in its)
        if peers:
            self.put(signal(job, run.allocation_version, *peers))

    def complete(self, job: JobId) -> None:
        """A job reads all and completes."""
        spec = self.client.replica().spec(job)
        self.put(*(ExhaustInput(job=job, task=each) for each in spec.sources))
        self.put(*(SealOutput(job=job, task=each) for each in spec.outputs))

    def partitions(self, job: JobId, task: str, count: int, completed: int) -> None:
        """The partitions of an input are known, and how far each is."""
        self.put(RegisterPartitions(job=job, task=TaskName(task), count=count))
        first = self.client.replica().partitions(job)[TaskName(task)].first
        for number in range(first, first + count):
            self.document(documents.frontier(job, number), {"position": completed})

    def document(self, path: str, value: Any) -> None:
        """Store something beside the log."""
        self.log.put_document(path, msgspec.json.encode(value), None)

    def stall(self, job: JobId, task: str, why: str, *, reason: Reason = Reason.FUNCTION) -> None:
        """A worker reports that a task does not advance."""
        replica = self.client.replica()
        peer = replica.run(job).allocation[TaskName(task)][0]
        group = replica.groups_reverse_index[peer]
        stack = (
            StackFrame("/app/shop.py", 42, "enrich", "rate = fetch(segment['currency'])"),
            StackFrame("/usr/lib/python3.11/socket.py", 718, "readinto"),
        )
        found = Stall(
            job, TaskName(task), peer, reason, why, self.now_ms - 95_000, alone=True,
            segments=1_204, oldest_ms=self.now_ms - 97_000, stack=stack,
        )  # fmt: skip
        self.document(documents.stall(job, group), [found])

    def fail(self, job: JobId, task: str) -> None:
        """A task kills its job."""
        report = {
            "job": job,
            "task": task,
            "phase": "its function",
            "detail": "ValueError: could not convert string to float: 'n/a'",
            "errors": [
                {"relation": "", "type": "ValueError", "message": "could not convert",
                 "frames": [{"file": "/app/shop.py", "line": 17, "function": "clean",
                             "code": "amount = float(segment['amount'])"}]},
            ],
            "segment": "{'order': 4711, 'amount': 'n/a'}",
        }  # fmt: skip
        self.document(documents.exception(job), report)
        self.put(KillJob(job=job))

    def outcome(self, job: JobId, task: str, dead_letters: int) -> None:
        """Workers report segments that went to dead letters."""
        group = self.client.replica().groups[0]
        totals = TaskTotals(
            segments_in=120_000, dead_letters=dead_letters, first_dead_letter="KeyError: 'customer'"
        )
        report = OutcomeReport(group, True, {TaskName(task): totals})
        self.document(documents.outcome(job, group), report)

    def death(self, host: str) -> None:
        """A supervisor reports that a process has died."""
        died = Death(
            host, 1, self.now_ms - 200_000, DeathCause.MEMORY, "SIGKILL", 900 << 20, 1 << 30,
            "function shop:enrich",
        )  # fmt: skip
        report_death(self.log, died)

    def console(
        self,
        figures: Measures = UNMEASURED,
        answer: Answerer = nobody_answers,
        acts_on: Past | None = None,
        append: Append = nobody_answers,
    ) -> Console:
        """A console that has read all.

        Args:
            figures: what workers say that they measure.
            answer: what is said of a state.
            acts_on: a log that is followed, of a console with actions.
            append: takes segments.
        """
        past = acts_on or Past(self.client.first_replica())
        for change in () if acts_on else self.client.changes():
            past.take(change.entry, change.new)
        reporter = Reporter(
            self.client, past, lambda: self.now_ms, lambda: self.clock_s, 0.5, lambda _: figures
        )
        actions = Actions(self.client, past, reporter.manifests) if acts_on else None
        appends = SegmentAppends(past, reporter.manifests, append) if acts_on else None
        return Console(
            self.client, past, reporter, "shop", lambda: self.now_ms, answer, actions, appends
        )

    def text(self, path: str, **query: str) -> str:
        """A page as the browser gets it."""
        console = self.console()
        return console.html(console.page(path, query))


GROUPS = [f"{n}f3a9c01-4c47-4b1c-9d5e-1f3a5b7c9d{n}{n}" for n in range(1, 6)]


def shop(jobs: int = 0) -> ConsoleWorld:
    """A cluster in which much has happened; with so many more jobs that wait."""
    world = ConsoleWorld()
    world.now_ms = int(time.time() * 1000)
    world.join(*GROUPS[:4], peers=14, code="3f2a9c01")
    orders = world.submit("orders", catalog=STATEFUL)
    world.partitions(orders, "orders", 4, 120_417)
    flights = world.submit("flights")
    world.complete(flights)
    clicks = world.submit("clicks")
    world.outcome(clicks, "clean", 312)
    broken = world.submit("returns")
    world.fail(broken, "clean")
    world.put(SuspendJob(job=world.submit("nightly")), by="kubernetes:grace")
    world.join(GROUPS[4], peers=4, tags=("gpu",), code="9d01aa3e")
    world.leave(GROUPS[1])
    world.ready(orders)
    world.ready(clicks)
    world.stall(clicks, "enrich", "function shop:enrich has not come back")
    world.death("worker-2")
    catalog = [{**each, "requiredTags": ["tpu"]} if each["name"] == "enrich" else each
               for each in SPEC["catalog"]]  # fmt: skip
    world.submit("prices", catalog=catalog)
    for number in range(jobs):
        _more(world, number)
    return world


def _more(world: ConsoleWorld, number: int) -> None:
    """One of many jobs, of which few have peers: else most of the time would be scheduling."""
    job = JobId(f"job-{number:04}")
    submitted = world.client.prepare(job, parse_mapping(manifest(f"feed-{number % 50}")))
    world.put(submitted, by="kubernetes:grace")
    world.put(SuspendJob(job=job) if number % 3 else KillJob(job=job, why="its task clean failed"))


def measured(world: ConsoleWorld) -> Measures:
    """What workers of `shop` measure: one task holds the others up, and one worker is silent."""
    jobs = {each.name: each.id for each in world.client.statuses()}
    found = [_measured(jobs["orders"], 1.0), _measured(jobs["clicks"], 0.2)]
    tasks = tuple(task for each, _ in found for task in each)
    edges = tuple(edge for _, each in found for edge in each)
    zookeeper = ZooKeeperMeasures(log_position=world.client.replica().version)
    worker = WorkerMeasures(
        GROUPS[0], world.now_ms, tasks, edges, zookeeper, 180 << 20,
        tuple(_at_work(world, JobId(jobs["orders"]))), 700 << 20, 1 << 30,
        canonical.digest(world.client.replica()),
    )  # fmt: skip
    return Measures((worker,), {GROUPS[2]: "no answer in time: 1 s"})


def _at_work(world: ConsoleWorld, job: JobId) -> Iterator[PeerMeasures]:
    """What the peers of one worker do: those of a function are in it."""
    replica = world.client.replica()
    stack = (StackFrame("/app/shop.py", 42, "enrich", "rate = fetch(segment['currency'])"),)
    for task, peers in replica.run(job).allocation.items():
        for peer in peers:
            if replica.groups_reverse_index[peer] == GROUPS[0]:
                runs = task == "enrich"
                yield PeerMeasures(
                    job, task, peer, "apply-fn" if runs else "read-batch",
                    3.25 if runs else None, 1_204, stack if runs else (),
                )  # fmt: skip


def _measured(job: str, speed: float) -> tuple[list[TaskMeasures], list[EdgeMeasures]]:
    complete = Durations((0.01, 0.1, 1.0, 10.0), (90, 60, 8, 1, 0), 12.0)
    slowest = tuple(
        PartitionMeasures(f"shard-{n}", 120_417 - n, 400, 12_052 - n, event_time_ms=NOW_MS - n)
        for n in range(4)
    )
    read = InputMeasures(
        4,
        48_210,
        None,
        92.0,
        12_800.0,
        complete=complete,
        slowest=slowest,
        retried=17,
        event_time_ms=NOW_MS - 3,
    )
    state = StateMeasures(120 << 20, 40_210, 12, NOW_MS + 60_000, {"left": 7, "right": 1_204})
    rates = [
        ("orders", "clean", 12_400), ("clean", "enrich", 12_100), ("enrich", "totals", 11_000),
        ("enrich", "alerts", 21), ("clean", "rejected", 3), ("totals", "store", 120),
    ]  # fmt: skip
    busy = {"orders": 1.1, "clean": 2.4, "enrich": 2.9, "totals": 0.8}
    tasks = [
        TaskMeasures(
            job,
            task,
            peers=3,
            in_per_s=12_400 * speed,
            out_per_s=12_100 * speed,
            busy=busy[task],
            busiest=busy[task] / 3,
            queue_segments=60_210 if task == "enrich" else 0,
            queue_max=65_536,
            input=read if task == "orders" else None,
            state=state if task == "totals" else None,
        )
        for task in busy
    ]
    edges = [
        EdgeMeasures(job, source, target, rate * speed, held=1.4 if target == "enrich" else 0.0)
        for source, target, rate in rates
    ]
    return tasks, edges


def main() -> None:
    """Show it until it is interrupted."""
    port, jobs = (int(each) for each in ["8484", "0", *sys.argv[1:]][-2:])
    world = shop(jobs)
    settings = Settings(tenancy_id="shop")
    with serving(world.client, settings, ConsoleOptions(port=port)) as address:
        print(address, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
