"""What strikes a simulated cluster during chaos: a method a family, each with its own stream."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.support.log.raw_entries import raw_entry

from onyx.replica.commands import (
    DrainJob,
    Gc,
    KillJob,
    PauseJob,
    ResumeJob,
    SetOptions,
    SuspendJob,
)
from onyx.replica.commands.set_options import TaskOptions

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.process import Process

JOBS_MAX = 6
POISON: tuple[tuple[str, dict[str, object]], ...] = (
    ("no-such-command", {"id": "x"}),
    ("submit-job", {"id": 7}),
    ("prepare-join-cluster", {}),
    ("notify-join-cluster", {"observer": None}),
    ("accept-join-cluster", {"observer": ["a"]}),
    ("add-virtual-peer", {"id": "ghost", "group-id": "nobody"}),
    ("leave-cluster", {"id": {"a": 1}}),
    ("exhaust-input", {"job": "job-0", "task": "nowhere", "partitions": "all"}),
    ("seal-output", {"job": "job-0", "task": []}),
    ("restart-task", {"job": "job-0", "task": "in", "afresh": "yes"}),
    ("report-loss", {"job": "job-0", "task": "in", "loss": "", "runs": [[1]]}),
    ("register-partitions", {"job": "job-0", "task": "in", "count": -1}),
    ("signal-ready", {"jobs": [{"job": "job-0", "version": "x", "peers": ["ghost"]}]}),
    ("signal-ready", {"jobs": []}),
    ("kill-job", {}),
    ("suspend-job", {"job": "nobody"}),
    ("drain-job", {"job": []}),
    ("pause-job", {}),
    ("signal-rest", {"job": "job-0", "task": "in", "version": 1, "pause": 2, "peers": []}),
    ("signal-failing", {"job": "job-0", "task": "in", "peer": ["ghost"]}),
    ("set-options", {"job": "job-0", "tasks": {"in": {"maxPending": -1}}}),
    ("set-options", {"job": "job-0", "tasks": {"in": {"minPeers": 1}}}),
)


def _set_options(job: str) -> SetOptions:
    return SetOptions(job=job, tasks={"in": TaskOptions(max_pending=5)})


class Faults:
    """The families that are on, striking at exponentially distributed times."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.on = False
        self.collections = 0

    def begin(self) -> None:
        self.on = True
        for family, period_s in self.cluster.options.periods_s:
            self._arm(family, period_s, self.world.stream(f"fault/{family}"))

    def end(self) -> None:
        """No more faults, and everything that was broken is mended."""
        self.on = False
        self.world.log("--- healed")
        if not self.cluster.server.up:
            self.cluster.server.restart()
        for process in self.cluster.processes:
            if process.running:
                process.client.partitioned_until_s = 0.0
                process.thaw()
            self._start_again(process)

    def _start_again(self, process: Process) -> None:
        """Also those that are on their way out are started, once they are gone."""
        if not process.running:
            process.start()
        elif process.state is not None and process.state.leaving:
            self.world.after(1.0, self._start_again, process)

    def _arm(self, family: str, period_s: float, chance: random.Random) -> None:
        self.world.after(chance.expovariate(1 / period_s), self._strike, family, period_s, chance)

    def _strike(self, family: str, period_s: float, chance: random.Random) -> None:
        if not self.on:
            return
        self.world.log("fault:", family)
        getattr(self, f"_{family}")(chance)
        self._arm(family, period_s, chance)

    def _timeouts(self, chance: random.Random, least: float, most: float) -> float:
        return chance.uniform(least, most) * self.cluster.options.session_timeout_s

    def _later_start(self, process: Process, delay_s: float) -> None:
        def start() -> None:
            if self.on and not process.running:
                process.start()

        self.world.after(delay_s, start)

    def _crash(self, chance: random.Random) -> None:
        processes = self.cluster.processes
        count = min(len(processes), chance.choice((1, 1, 1, 2, len(processes))))
        for process in chance.sample(processes, count):
            process.crash()
            self._later_start(process, self._timeouts(chance, 0.05, 2))

    def _freeze(self, chance: random.Random) -> None:
        process = chance.choice(self.cluster.processes)
        process.freeze()
        self.world.after(self._timeouts(chance, 0.1, 2.5), process.thaw)

    def _reset(self, chance: random.Random) -> None:
        process = chance.choice(self.cluster.processes)
        if process.running:
            process.client.break_connection(self._applied(process, chance))

    def _blackhole(self, chance: random.Random) -> None:
        process = chance.choice(self.cluster.processes)
        if process.running:
            until_s = self.world.now_s + self._timeouts(chance, 0.2, 2)
            process.client.partitioned_until_s = until_s
            noticed_s = self._timeouts(chance, 1 / 3, 2 / 3)
            process.client.break_connection(self._applied(process, chance), noticed_s)

    def _applied(self, process: Process, chance: random.Random) -> int:
        """How many of the requests in flight still reach the server."""
        connection = process.client.connection
        sent = len(connection.in_flight) if connection is not None else 0
        return chance.randint(0, sent)

    def _expiry(self, chance: random.Random) -> None:
        """An administrator closes a session."""
        process = chance.choice(self.cluster.processes)
        if process.running and process.client.session is not None:
            self.cluster.checkers.evicted.add(process.group)
            self.cluster.server.expire(process.client.session)

    def _outage(self, chance: random.Random) -> None:
        server = self.cluster.server
        if not server.up:
            return
        for process in self.cluster.processes:
            if process.running:
                process.client.break_connection(self._applied(process, chance))
        server.stop()
        self.world.after(chance.choice((0.5, 3.0, 12.0)), self._end_outage)

    def _end_outage(self) -> None:
        if not self.cluster.server.up:
            self.cluster.server.restart()

    def _leave(self, chance: random.Random) -> None:
        process = chance.choice(self.cluster.processes)
        process.leave()
        self._later_start(process, chance.uniform(0.5, 5))

    def _peers(self, chance: random.Random) -> None:
        process = chance.choice(self.cluster.processes)
        if process.running and process.state is not None:
            drawn = chance.random()
            some = process.remove_peer if drawn < 0.75 else process.restart_peer
            process.run(process.add_peer if drawn < 0.5 else some)

    def _jobs(self, chance: random.Random) -> None:
        if not self.cluster.server.up:
            return
        if len(self.cluster.jobs) < JOBS_MAX and chance.random() < 0.7:
            self.cluster.submit()
        else:
            job = chance.choice(list(self.cluster.jobs))
            self.cluster.write(KillJob(job=job))

    def _lifecycle(self, chance: random.Random) -> None:
        """Somebody suspends, pauses, resumes, drains or changes a job, whatever it is doing."""
        if self.cluster.server.up:
            verbs = (SuspendJob, SuspendJob, PauseJob, ResumeJob, DrainJob, _set_options)
            verb = chance.choice(verbs)
            job = chance.choice(list(self.cluster.jobs))
            self.cluster.write(verb(job=job))

    def _poison(self, chance: random.Random) -> None:
        if self.cluster.server.up:
            self.cluster.write_raw(raw_entry(*chance.choice(POISON)))

    def _collect(self, chance: random.Random) -> None:
        """Garbage collection by a client that may die between its steps."""
        server = self.cluster.server
        if not server.up:
            return
        _, _, version = server.execute(None, "origin", ()).value
        self.collections += 1
        position = self.cluster.write(Gc(id=f"collector-{self.collections}"))
        if chance.random() < 0.9:
            delay_s = chance.uniform(0, 0.5)
            self.world.after(delay_s, self._replace_origin, position, version, chance)

    def _replace_origin(self, position: int, version: int, chance: random.Random) -> None:
        server = self.cluster.server
        if not server.up or position <= server.origin[0]:
            return
        stored = self.cluster.encode(self.cluster.checkers.replicas[position])
        reply = server.execute(None, "put_origin", ((position, stored), version))
        if reply.status.value == "ok" and chance.random() < 0.9:
            self.world.after(chance.uniform(0, 0.5), self._trim, position, chance)

    def _trim(self, position: int, chance: random.Random) -> None:
        server = self.cluster.server
        old = tuple(each for each in server.entries if each <= position)
        some = old[: chance.randint(0, len(old))]
        server.execute(None, "delete", (some,))
        if len(some) < len(old) and chance.random() < 0.8:
            self.world.after(chance.uniform(0, 0.5), self._trim, position, chance)
