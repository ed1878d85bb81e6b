"""Many jobs on many peers: time until all run, and entries of the log a job.
`python -m benchmarks.many_jobs [--jobs 100] [--peers 450]`

A real ZooKeeper, three worker processes, and `onyx submit` with all job files at once. First one
job runs alone on all peers from its submission to its end: what it writes to the log must not grow
with peers. Then jobs without end are submitted until all of them run side by side.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from benchmarks.figures import Figure, Measured, Options, parser, run

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.log.server.environment import shutdown_env, start_env
from onyx.replica.state import Replica
from onyx.rights import of_its_author
from onyx.settings import Settings, ZooKeeperServerSettings

PROCESSES = 3
GOAL_RUN_S = 60.0
GOAL_ENTRIES, GOAL_ENTRIES_A_GROUP = 8, 2
TIMEOUT_S = 600.0
LOOK_INTERVAL_S = 0.1


def manifest(name: str, segments: int | None, folder: Path) -> dict[str, Any]:
    """A job of three tasks; `segments` of None are segments without end."""
    size = {"ratePerSecond": 1} if segments is None else {"segments": segments}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {
            "metadata": {"jobId": name},
            "workflow": [["read", "keep"], ["keep", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "generator", "options": size},
                {"name": "keep", "type": "function", "fn": "many_jobs_tasks:keep"},
                {
                    "name": "write", "type": "output", "plugin": "files",
                    "options": {"path": str(folder / "out" / name)},
                },
            ],
        },
    }  # fmt: skip


@contextmanager
def workers(folder: Path, settings: Settings, peers: int) -> Iterator[None]:
    """Worker processes with so many peers in all."""
    (folder / "many_jobs_tasks.py").write_text("def keep(segment):\n    return segment\n")
    options = ("--processes", PROCESSES, "--peers", peers, "--metrics-port", 0)
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            onyx("worker", *options, "--modules", "many_jobs_tasks", *where(settings)),
            cwd=folder,
            env={**os.environ, "ONYX_STATE_URL": str(folder / "state")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def onyx(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "onyx.cli", *map(str, arguments)]


def where(settings: Settings) -> tuple[str, str]:
    return "--zookeeper", settings.zookeeper.address


class Watched:
    """The log as a client follows it."""

    def __init__(self) -> None:
        self.entries: Counter[str] = Counter()
        self.replica = Replica()

    def see(self, item: Any, replica: Replica) -> None:
        self.entries[item.command.NAME] += 1
        self.replica = replica

    def until(self, condition: Callable[[Replica], bool], what: str) -> None:
        ends = time.monotonic() + TIMEOUT_S
        while not condition(self.replica):
            if time.monotonic() > ends:
                raise RuntimeError(f"not after {TIMEOUT_S:.0f} s: {what}")
            time.sleep(LOOK_INTERVAL_S)


def submit(folder: Path, settings: Settings, jobs: list[dict[str, Any]]) -> None:
    """All at once, as a user would."""
    paths = []
    for job in jobs:
        paths.append(folder / f"{job['metadata']['name']}.yaml")
        paths[-1].write_text(yaml.safe_dump(job))
    subprocess.run(onyx("submit", *paths, *where(settings)), check=True, stdout=subprocess.DEVNULL)


def one_job(
    client: Client, folder: Path, settings: Settings, peers: int, segments: int
) -> Counter[str]:
    """Entries of a job that runs alone on all peers, from its submission to its end."""
    watched = Watched()
    with client.follow(watched.see):
        watched.until(lambda now: len(now.peers) == peers, f"{peers} peers")
        before = watched.entries.copy()
        submit(folder, settings, [manifest("alone", segments, folder)])
        watched.until(lambda now: "alone" in now.completed_jobs, "the job alone has completed")
        return watched.entries - before


def many(client: Client, folder: Path, settings: Settings, jobs: int) -> tuple[float, Counter[str]]:
    """Seconds from the submission until all run, and the entries of that time."""
    watched = Watched()
    made = [manifest(f"job-{number:04}", None, folder) for number in range(jobs)]
    with client.follow(watched.see):
        before = Counter(watched.entries)
        start = time.monotonic()
        submit(folder, settings, made)

        def all_run(now: Replica) -> bool:
            return len(now.jobs) == jobs and all(now.run(job).is_ready for job in now.jobs)

        watched.until(all_run, f"{jobs} jobs run")
        return time.monotonic() - start, watched.entries - before


def measure(options: argparse.Namespace) -> Measured:
    jobs, peers = options.jobs, options.peers
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name:
        folder = Path(name)
        server = ZooKeeperServerSettings(data_dir=str(folder / "zookeeper"))
        env = start_env(of_its_author(Settings(zookeeper_server=server)))
        try:
            settings = env.settings
            with workers(folder, settings, peers), connect(settings) as client:
                alone = one_job(client, folder, settings, peers, options.segments)
                run_s, entries = many(client, folder, settings, jobs)
        finally:
            shutdown_env(env)
    goal = GOAL_ENTRIES + GOAL_ENTRIES_A_GROUP * PROCESSES
    each = f"in {PROCESSES} processes"
    return Measured(
        [
            Figure(f"entries of one job on {peers} peers {each}", alone.total(), "entries", goal),
            Figure(f"{jobs} jobs on {peers} peers {each} run", run_s, "s", GOAL_RUN_S),
            Figure("entries a job until all run", entries.total() / jobs, "entries", goal),
        ],
        {"alone": dict(alone), "many": dict(entries)},
    )


def options() -> Options:
    made = parser(__doc__)
    made.sized("--jobs", 100, 10, 1)
    made.sized("--peers", 450, 45, 6, "in all; a multiple of three")
    made.sized("--segments", 100_000, 100_000, 1_000, "of the job that runs alone")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
