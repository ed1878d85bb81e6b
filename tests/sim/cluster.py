"""One simulated cluster: build, chaos, heal; the first violation ends the run."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from tests.sim import liveness
from tests.sim.bugs import Bug
from tests.sim.checkers import Checkers, Violation
from tests.sim.faults import Faults
from tests.sim.jobs import SimJob, draw_job
from tests.sim.process import Process
from tests.sim.swarm import Options, draw_options
from tests.sim.world import World
from tests.sim.zk import Server
from tests.support.log.runs import by_job

from onyx.codec.entries import encode_entry
from onyx.ids import GroupId, JobId
from onyx.peer import group
from onyx.replica import canonical, machine
from onyx.replica.command import Command, Entry
from onyx.replica.commands import DrainJob, KillJob, ResumeJob
from onyx.replica.effects import Effect
from onyx.replica.state import Replica

HEAL_S = 90.0
"""Virtual time within which a healed cluster must have converged."""
SETTLE_S = 10.0
IDLE_S = 20.0
BUILD_STEPS = 100
STEPS = 1_000
"""Events of the chaos phase."""
CHECK_EVERY_STEPS = 20


class Fold:
    """Stands for `replica.machine` in the group, so that bugs can be planted in it.

    An entry applied to the model's own object is not computed again: the function is pure, and L6
    computes everything a second time at the end.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.current: Process | None = None
        self.model = machine.apply

    def apply(self, replica: Replica, entry: Entry) -> Replica:
        assert self.current is not None
        replicas, position = self.cluster.checkers.replicas, entry.position
        own = self.cluster.bug.own(self.current, self.model)
        if own is self.model and position > 0 and replica is replicas[position - 1]:
            return replicas[position]
        return own(replica, entry)

    def reactions(
        self, entry: Entry, old: Replica, new: Replica, me: GroupId
    ) -> tuple[Command, ...]:
        return machine.reactions(entry, old, new, me)

    def effects(self, entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Effect, ...]:
        return machine.effects(entry, old, new, me)


class Cluster:
    """Everything in one run."""

    def __init__(self, seed: int, options: Options, bug: Bug) -> None:
        self.options = options
        self.bug = bug
        self.world = World(seed)
        self.checkers = Checkers(self)
        self.server = Server(self.world, options.delays, self.checkers)
        self.fold = Fold(self)
        self.jobs: dict[JobId, SimJob] = {}
        peers = self.world.stream("peers")
        self.processes = [
            Process(self, number, peers.randint(1, options.peers_max))
            for number in range(options.processes)
        ]
        self.faults = Faults(self)

    def encode(self, replica: Replica) -> bytes:
        return canonical.encode(replica)

    def decode(self, stored: bytes) -> Replica:
        return canonical.decode(stored)

    def write(self, command: Command) -> int:
        """A client appends."""
        return self.write_raw(encode_entry(command, "", 0, None))

    def write_raw(self, data: bytes) -> int:
        """A client writes an entry of any bytes."""
        return self.server.create_entry(data)

    def submit(self) -> None:
        job = draw_job(len(self.jobs), self.world.stream(f"job/{len(self.jobs)}"))
        self.jobs[job.id] = job
        self.write(job.submission())

    def run(self, steps: int) -> None:
        """Raises Violation."""
        with mock.patch.object(group, "machine", self.fold):
            self._build()
            self.faults.begin()
            self._steps(steps)
            self.faults.end()
            self._heal()
            if self.options.replays:
                self.checkers.replay()

    def _build(self) -> None:
        start = self.world.stream("start")
        for process in self.processes:
            self.world.after(start.uniform(0, self.options.start_s), process.start)
        self.submit()
        self._steps(BUILD_STEPS)

    def _steps(self, count: int) -> None:
        for _ in range(count):
            if not self.world.step():
                return

    def _heal(self) -> None:
        self._until(liveness.membership)
        self._until(liveness.allocation)
        self._until(liveness.rest)
        for job in {
            **by_job(self.checkers.model, "suspended"),
            **by_job(self.checkers.model, "paused"),
        }:
            self.write(ResumeJob(job=job))
        for number, job in enumerate(self.checkers.model.jobs):
            if not self.jobs[job].finite:
                self.write(KillJob(job=job) if number % 2 else DrainJob(job=job))
        self._until(liveness.completion)
        self._until(liveness.membership)
        self._idle()

    def _until(self, problem: Callable[[Cluster], str | None]) -> None:
        """Run until there is no problem; raises Violation when there still is one at the end."""
        limit_s = self.world.now_s + HEAL_S
        while (found := problem(self)) is not None:
            if self.world.now_s > limit_s:
                raise Violation(found)
            self._steps(CHECK_EVERY_STEPS)

    def _idle(self) -> None:
        """V6: nothing is written when nothing happens."""
        self._for(SETTLE_S)
        before = len(self.checkers.entries)
        self._for(IDLE_S)
        written = self.checkers.entries[before:]
        if written:
            raise Violation(f"V6: an idle cluster writes {written[:5]}")

    def _for(self, time_s: float) -> None:
        until_s = self.world.now_s + time_s
        while self.world.now_s < until_s and self.world.step():
            pass


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended, and what is needed to look into it."""

    seed: int
    problem: str | None
    trace_hash: str
    steps: int
    entries: int
    virtual_s: float
    options: Options
    recent: tuple[str, ...]
    replicas: tuple[str, ...]


def simulate(seed: int, bug: str | None = None, steps: int = STEPS) -> Outcome:
    """One run; never raises for what the simulated system does wrong."""
    options, planted = draw_options(seed), Bug(bug)
    problem = None
    with planted.planted():
        cluster = Cluster(seed, options, planted)
        try:
            cluster.run(steps)
        except Violation as violation:
            problem = str(violation)
        except Exception as error:  # a crash of the code under test is a finding like any other
            problem = f"L5: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
    return Outcome(
        seed=seed,
        problem=problem,
        trace_hash=cluster.world.trace_hash(),
        steps=cluster.world.steps,
        entries=len(cluster.checkers.entries),
        virtual_s=cluster.world.now_s,
        options=options,
        recent=tuple(cluster.world.recent),
        replicas=tuple(_describe(process) for process in cluster.processes),
    )


def explain(outcome: Outcome, bug: str | None, steps: int = STEPS) -> str:
    """What went wrong, and the one line that repeats it."""
    planted = f" BUG={bug}" if bug else ""
    lines = [
        f"cluster, seed {outcome.seed}: {outcome.problem}",
        f"repeat with: make sim WORLD=cluster SEED={outcome.seed} STEPS={steps}{planted}",
        f"options: {outcome.options}",
        *(f"  {replica}" for replica in outcome.replicas),
        *(f"  {event}" for event in outcome.recent),
    ]
    return "\n".join(lines)


def _describe(process: Process) -> str:
    if process.state is None:
        return f"{process.group or process.number}: down"
    replica = process.state.replica
    return f"{process.group}: at {replica.version}, digest {canonical.digest(replica)}"
