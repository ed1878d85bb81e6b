"""What runs on Spark under SIGKILL: of the JVM, Spark's Python workers, drivers, servers, workers.

Jobs run one after the other on two real workers: whole jobs with `engine: spark`, over inputs with
and without end, jobs with a stage in the middle or at the end, in a process beside the worker or on
a Spark Connect server, and windows by Spark (`spark_fault_kinds`). In each of them processes die at
moments that a seed has drawn. Each job must complete and write what a plain loop says, neither less
nor more.

    python -m tests.support.spark.faults --kills 50 --seed 1
    python -m tests.support.spark.faults --kills 20 --seed 2 --kinds micro window
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from msgspec.structs import replace
from tests.chaos import spark_job
from tests.support.servers.cluster import Cluster, Worker
from tests.support.servers.ports import free_port
from tests.support.servers.spark_servers import SparkServer, connect_server
from tests.support.spark.fault_kinds import KINDS, check, manifest, prepared, sign

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer

PEERS = 3
KILLS_MIN, KILLS_MAX = 2, 6
"""In one job."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""A JVM that is soon killed need not compile well."""
ATTEMPTS_MAX = 50
"""A query or stage fails with each process that is killed, and that is no reason to give up."""
ENDING_S = 0.3
"""Longest delay between the moment "ending" and a kill."""
APPEARS_S, END_WAIT_S, SESSION_TIMEOUT_S = 300.0, 600.0, 4.0
POLL_S = 0.02

Kill = Callable[[], None]


@dataclass
class Faults:
    """What is to happen."""

    kills: int
    seed: int
    kinds: tuple[str, ...] = tuple(KINDS)
    reported: Callable[[str], None] = field(default=lambda text: None)


class World:
    """The cluster, and what has been killed in it."""

    def __init__(self, cluster: Cluster, folder: Path, faults: Faults) -> None:
        self.cluster = cluster
        self.faults = faults
        self.chance = random.Random(faults.seed)
        self.made: Counter[str] = Counter()
        """Kills by kind of job, victim and moment."""
        self.jobs = 0
        self._folder = folder
        self._notes = folder / "notes"
        self._notes.mkdir()
        self._hold = folder / "hold"
        self._workers: list[Worker] = []
        self._struck: set[int] = set()
        """Processes of queries and stages that are at their end, by what was killed."""
        self._latest = 0
        """The one that was seen last."""
        self._server: SparkServer | None = None

    def run(self) -> None:
        """Run jobs until all kills are made.

        Raises:
            AssertionError: a job does not complete, or has written something else.
        """
        task = replace(self.cluster.settings.task, seal_attempts_max=ATTEMPTS_MAX)
        self.cluster.settings = replace(self.cluster.settings, task=task)
        variables = {spark_job.NOTES: str(self._notes), "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
        with patch.dict(os.environ, variables):
            self._workers = self.cluster.start_workers(2, PEERS)
            try:
                while (left := self.faults.kills - self.made.total()) > 0:
                    self._job(self.faults.kinds[self.jobs % len(self.faults.kinds)], left)
                    self.jobs += 1
            finally:
                if self._server is not None:
                    self._server.kill()

    def _job(self, kind: str, left: int) -> None:
        folder = self._folder / f"job-{self.jobs}"
        folder.mkdir()
        job = self.cluster.submit(manifest(kind, folder, self._master(kind)))
        for _ in range(min(left, self.chance.randint(KILLS_MIN, KILLS_MAX))):
            victim = self.chance.choice([*KINDS[kind].victims])
            of_worker = KINDS[kind].of_worker if victim == "worker" else ()
            moment = self.chance.choice([*KINDS[kind].moments, *of_worker])
            if self._strike(job, kind, victim, moment, folder):
                self.made[f"{kind}: {victim}, {moment}"] += 1
                self.faults.reported(
                    f"{self.made.total()}/{self.faults.kills} job {self.jobs} ({kind}): {victim} "
                    f"killed, {moment}"
                )
        self.cluster.await_completed(job, END_WAIT_S)
        check(kind, folder)

    def _strike(self, job: JobId, kind: str, victim: str, moment: str, folder: Path) -> bool:
        """Kill one process; False if the job has ended before.

        `begun`: as soon as it is there. `working`: while functions run, or Spark writes.
        `committed`: between the commit of a micro-batch and its publication. `ending`: when a
        result is staged, and the worker commits and publishes it.
        """
        for each in self._notes.iterdir():
            each.unlink()
        if moment == "committed":
            self._hold.touch()
        try:
            found = self._await(job, lambda: self._victim(kind, victim))
            if found is not None and moment != "begun":
                found = self._at(job, kind, victim, moment, folder, found)
            if found is None or self._has_ended(job):
                return False
            self._struck.add(self._latest)
            found()
        finally:
            self._hold.unlink(missing_ok=True)
        return True

    def _at(
        self, job: JobId, kind: str, victim: str, moment: str, folder: Path, found: Kill
    ) -> Kill | None:
        """What kills it at a moment later than `begun`; None if the job has ended before."""
        state = self._folder / "state"
        happened = sign(kind, moment, folder, state, self._notes, self._latest)
        if not self._await(job, happened):
            return None
        if moment == "ending":
            time.sleep(self.chance.uniform(0, ENDING_S))
        if moment != "working":
            return found
        time.sleep(self.chance.uniform(0, KINDS[kind].working_s))
        again: Kill | None = self._await(job, lambda: self._victim(kind, victim))
        return again

    def _victim(self, kind: str, victim: str) -> Kill | None:
        """What kills it; None while it is not there."""
        driver = KINDS[kind].driver
        for index, worker in enumerate(self._workers):
            family = {each.pid: command for each, command in _descendants(worker)}
            drivers = [pid for pid, command in family.items() if driver in command]
            if not drivers or drivers[0] in self._struck:
                continue
            self._latest = drivers[0]
            if victim == "worker":
                return partial(self._kill_worker, index)
            if victim == "server":
                return self._kill_server
            mark = KINDS[kind].victims[victim]
            pids = [pid for pid, command in family.items() if mark in command]
            if pids:
                pid = max(pids) if victim == "python" else pids[0]
                return partial(_kill, pid)
        return None

    def _kill_worker(self, index: int) -> None:
        dead = self.cluster.group_of(self._workers[index])
        self._workers[index].kill()
        self._workers[index] = self.cluster.start_worker(PEERS)
        self.cluster.await_gone([dead])
        self.cluster.await_members([self._workers[index]], PEERS)

    def _kill_server(self) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.start()

    def _master(self, kind: str) -> str:
        if not KINDS[kind].connect:
            return "local[2]"
        if self._server is None:
            self._server = connect_server(self._folder / "connect")
        return f"sc://127.0.0.1:{self._server.port}"

    def _await(self, job: JobId, look: Callable[[], Any]) -> Any:
        """What `look` finds; None if the job has ended before."""
        until_s = time.monotonic() + APPEARS_S
        while not (found := look()):
            if self._has_ended(job):
                return None
            assert time.monotonic() < until_s, "nobody to be killed has appeared"
            time.sleep(POLL_S)
        return found

    def _has_ended(self, job: JobId) -> bool:
        replica = self.cluster.replica
        return job in (*replica.completed_jobs, *replica.killed_jobs)


def _descendants(worker: Worker) -> Iterator[tuple[psutil.Process, str]]:
    """Processes that a worker has started, with their command lines."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(worker.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                yield each, " ".join(each.cmdline())


def _kill(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    given = parser.parse_args()
    faults = Faults(
        given.kills, given.seed, tuple(given.kinds), lambda text: print(text, flush=True)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            ZooKeeperServer(folder / "zookeeper", port=free_port()) as server,
            Cluster(server.address, folder, prepared(folder), SESSION_TIMEOUT_S) as cluster,
        ):
            world = World(cluster, folder, faults)
            world.run()
    print(f"{world.made.total()} kills in {world.jobs} jobs: every output exactly right")
    for what, count in sorted(world.made.items()):
        print(f"  {count:3} {what}")


if __name__ == "__main__":
    main()
