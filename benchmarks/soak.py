"""Many short jobs on one ZooKeeper: does anything grow? `python -m benchmarks.soak [--jobs 10000]`

A real ZooKeeper and worker processes that collect garbage by themselves, with a short history. Jobs
of three kinds of ends run some at a time: most complete, every tenth is killed while it runs, and
every tenth is upgraded by the next one. Every fourth has a window, and so state. Now and then the
oldest worker, which collects, is killed (SIGKILL) and another one started.

Sampled are what ZooKeeper holds (nodes and bytes), the replica, the memory of the workers, and
files of state. Each must be flat: its median over the last quarter of the jobs against that over
the second quarter. The curves are drawn (`--plot`).
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from benchmarks.figures import Figure, Measured, Options, parser, run
from benchmarks.plot import write_svg

from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.ids import JobId
from onyx.log.server.environment import shutdown_env, start_env
from onyx.model.parsing.job import parse_mapping
from onyx.replica import canonical
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.rights import of_its_author
from onyx.settings import Settings, ZooKeeperServerSettings

WORKERS, PEERS = 2, 10
AT_ONCE = 5
SEGMENTS = 20
HISTORY = {
    "AGE_S": 20, "KILLED_AGE_S": 30, "JOBS_MAX": 200, "ENTRIES_MAX": 2_000,
    "REMEMBERED_MAX": 300, "CHUNK_AGE_S": 20, "INTERVAL_S": 5,
}  # fmt: skip
GOAL_GROWTH = 1.2
STUCK_S = 300.0
LOOK_S = 0.05
SAMPLES = 200


def manifest(name: str, endless: bool, upgrade: str | None = None) -> dict[str, Any]:
    """A job of an input, a function or a window, and an output that drops what it gets."""
    number = int(name.split("-")[1])
    windowed = number % 4 == 0
    size: dict[str, Any] = {"ratePerSecond": 50} if endless else {"segments": SEGMENTS}
    middle = {"type": "reduce"} if windowed else {"type": "function", "fn": "soak_tasks:keep"}
    catalog: list[dict[str, Any]] = [
        {"name": "read", "type": "input", "plugin": "generator", "options": size},
        {"name": "work", **middle},
        {"name": "write", "type": "output", "plugin": "blackhole"},
    ]
    spec: dict[str, Any] = {
        "metadata": {"jobId": name},
        "guarantee": "exactly-once" if windowed else "at-least-once",
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [{**each, "maxPeers": 1} for each in catalog],
    }
    if windowed:
        spec["windows"] = [{"id": "sum", "task": "work", "type": "global", "aggregation": "count"}]
        spec["triggers"] = [
            {"windowId": "sum", "type": "segment", "threshold": [10, "elements"],
             "refinement": "accumulating", "emit": "soak_tasks:emit"}
        ]  # fmt: skip
    if upgrade is not None:
        spec["upgrade"] = {"from": upgrade}
    kind = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "soak"}}
    return {**kind, "spec": spec}


TASKS = """
def keep(segment):
    return segment


def emit(event, window, trigger, state_event, extent_state):
    return {"count": extent_state}
"""


@dataclass
class Worker:
    """A worker process, with its output in a file of its own."""

    folder: Path
    environment: dict[str, str]
    number: int
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with (self.folder / f"worker-{self.number}.log").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "onyx.cli", "worker", "--peers", str(PEERS),
                 "--modules", "soak_tasks"],
                cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def memory_mib(self) -> float:
        """Of the process and those below it, without what they share with others."""
        try:
            whole = psutil.Process(self.process.pid)
            each = [whole, *whole.children(recursive=True)]
            return sum(one.memory_full_info().uss for one in each) / 2**20
        except psutil.Error:
            return 0.0

    def end(self, how: signal.Signals) -> None:
        os.killpg(self.process.pid, how)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Soak:
    """The jobs, the workers and what was sampled."""

    def __init__(self, folder: Path, settings: Settings, client: Client, jobs: int) -> None:
        self.folder = folder
        self.settings = settings
        self.client = client
        self.jobs = jobs
        self.replica = client.replica()
        self.samples: list[dict[str, float]] = []
        self.started_s = time.monotonic()
        self.kills = 0
        self._moved = threading.Event()
        self._workers: list[Worker] = []
        self._started = 0

    def see(self, _: object, replica: Replica) -> None:
        self.replica = replica
        self._moved.set()

    def add_worker(self) -> None:
        history = {f"ONYX_HISTORY_{name}": str(value) for name, value in HISTORY.items()}
        environment = {
            **os.environ,
            **history,
            "ONYX_ZOOKEEPER_ADDRESS": self.settings.zookeeper.address,
            "ONYX_STATE_URL": str(self.folder / "state"),
        }
        self._workers.append(Worker(self.folder, environment, self._started))
        self._started += 1

    def kill_worker(self) -> None:
        """The one that has been there longest, which is the one that collects."""
        self._workers.pop(0).end(signal.SIGKILL)
        self.kills += 1
        self.add_worker()

    def end_workers(self) -> None:
        for worker in self._workers:
            worker.end(signal.SIGTERM)

    def run(self, kill_every: int, minutes: float) -> None:
        """Raises RuntimeError when nothing has moved for long."""
        sample_every = max(1, self.jobs // SAMPLES)
        under_way: dict[JobId, str] = {}
        submitted = ended = 0
        moved_s = time.monotonic()
        while ended < self.jobs and time.monotonic() - self.started_s < 60 * minutes:
            while submitted < self.jobs and len(under_way) < AT_ONCE:
                job, end = self._submit(submitted, under_way)
                under_way[job] = end
                submitted += 1
                if kill_every and submitted % kill_every == 0:
                    self.kill_worker()
            self._moved.wait(LOOK_S)
            self._moved.clear()
            gone = [job for job, end in under_way.items() if self._is_over(job, end)]
            for job in gone:
                del under_way[job]
                ended += 1
                moved_s = time.monotonic()
                if ended % sample_every == 0:
                    self.sample(ended)
                    self._tell()
            if time.monotonic() - moved_s > STUCK_S:
                raise RuntimeError(f"no job has ended for {STUCK_S:.0f} s: {under_way}")

    def _tell(self) -> None:
        last = self.samples[-1]
        print(", ".join(f"{value:,.1f} {name}" for name, value in last.items()), flush=True)

    def _submit(self, number: int, under_way: dict[JobId, str]) -> tuple[JobId, str]:
        """A job and how it ends: `completes`, `killed` or `upgraded`."""
        end = {3: "killed", 6: "upgraded"}.get(number % 10, "completes")
        if end == "upgraded" and number + 4 >= self.jobs:
            end = "completes"
        name = f"job-{number:05}"
        old = f"job-{number - 4:05}" if number % 10 == 0 and number else None
        upgraded = JobId(old) if old is not None and under_way.get(JobId(old)) else None
        job = manifest(name, end != "completes", upgraded)
        return self.client.submit(parse_mapping(job)).job, end

    def _is_over(self, job: JobId, end: str) -> bool:
        now = self.replica
        if end == "killed" and job in now.jobs and now.run(job).is_ready:
            self.client.kill(job)
        completed = has_completed(now, job)
        if end == "completes" and completed is False:
            raise RuntimeError(f"{job} was killed: {self.client.exception(job)}")
        return completed is not None

    def sample(self, ended: int) -> None:
        stats = dict(
            line.split("\t", 1) for line in self._told("mntr").splitlines() if "\t" in line
        )
        # Folders go while they are walked through, which `os.walk` passes over.
        files = sum(len(names) for _, _, names in os.walk(self.folder / "state"))
        self.samples.append(
            {
                "jobs": ended,
                "seconds": time.monotonic() - self.started_s,
                "nodes in ZooKeeper": float(stats["zk_znode_count"]),
                "KiB in ZooKeeper": float(stats["zk_approximate_data_size"]) / 2**10,
                "KiB of the replica": len(canonical.encode(self.replica)) / 2**10,
                "files of state": float(files),
                "MiB of a worker": max(each.memory_mib() for each in self._workers),
            }
        )

    def _told(self, word: str) -> str:
        host, port = self.settings.zookeeper.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()


def growth(samples: list[dict[str, float]], name: str) -> float:
    """The last quarter against the second one."""
    values = [sample[name] for sample in samples]
    quarter = max(1, len(values) // 4)
    return median(values[-quarter:]) / max(1e-9, median(values[quarter : 2 * quarter]))


def measure(options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory(prefix="onyx-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "soak_tasks.py").write_text(TASKS)
        server = ZooKeeperServerSettings(data_dir=str(folder / "zookeeper"))
        env = start_env(of_its_author(Settings(zookeeper_server=server)))
        stack.callback(shutdown_env, env)
        client = stack.enter_context(connect(env.settings))
        soak = Soak(folder, env.settings, client, options.jobs)
        stack.callback(soak.end_workers)
        for _ in range(WORKERS):
            soak.add_worker()
        stack.enter_context(client.follow(soak.see))
        soak.run(options.kill_every, options.minutes)
    names = [each for each in soak.samples[0] if each not in ("jobs", "seconds")]
    places = [sample["jobs"] for sample in soak.samples]
    curves = {each: [sample[each] for sample in soak.samples] for each in names}
    jobs = int(places[-1])
    title = f"{jobs:,} short jobs, a fifth of them killed or upgraded, the collector killed "
    title += f"{soak.kills} times"
    if options.plot:
        write_svg(options.plot, title, "jobs that have ended", places, curves)
    wall_s = soak.samples[-1]["seconds"]
    figures = [
        Figure(f"growth: {each}", growth(soak.samples, each), "x", GOAL_GROWTH,
               note=f"at most {max(curves[each]):,.1f}, {curves[each][-1]:,.1f} at the end")
        for each in names
    ]  # fmt: skip
    speed = Figure("jobs a second", jobs / wall_s, "jobs/s", at_least=True)
    return Measured([*figures, speed], {"samples": soak.samples, "kills": soak.kills})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--jobs", 10_000, 60, 12)
    made.sized("--kill-every", 500, 500, 6, "jobs; 0: nobody is killed")
    made.add_argument("--minutes", type=float, default=120.0, help="end then, whatever is done")
    made.add_argument("--plot", type=Path, help="the curves, as SVG")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
