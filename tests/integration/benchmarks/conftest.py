"""Where the benchmarks run in tests: data in a folder, workers that stay, a Python that is warm.

A benchmark starts an `onyx run` for each measurement and a Python for each program that it
compares: several hundred CPU seconds for all, nearly all of it the same start again. Here the same
jobs run one after another on the same three worker processes, and programs are forks of one that
has imported what they need. `startup`, and what changes the engine itself, still run as their users
run them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from benchmarks import data, harness, nexmark, onyx_run
from benchmarks.peers import CONTENDERS
from msgspec.structs import replace
from tests.support.servers.cluster import Cluster
from tests.support.servers.warm_python import WarmPython

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.model.parsing.job import parse_mapping

HERE = Path(__file__).parent
PEERS = 8
"""Of each worker: as many as a job has tasks, or more."""
SESSION_S = 30.0
EXTENTS_MAX = 1_000
"""Of all workers; `end_memory` asks for it."""
MODULES = (
    "bench_bad_rows", "bench_columns", "bench_joins", "bench_keyed_state", "bench_nexmark",
    "bench_probe", "bench_sources", "bench_state", "bench_sums", "bench_tasks", "nexmark.dicts",
    "nexmark.columns", "job_ends",
)  # fmt: skip
IMPORTED = (
    "benchmarks.bench_spill", "benchmarks.group_memory", "benchmarks.timer_memory", "bytewax.run",
    "bytewax.operators.windowing", "bytewax.connectors.files", "pyarrow.parquet", "runpy",
)  # fmt: skip
CHANGES_THE_ENGINE = "bench_no_log"
"""A worker with this module is of no use to others."""


class Asked(NamedTuple):
    """What a command line of `onyx run` says."""

    job: dict[str, Any]
    folder: Path
    processes: int
    modules: frozenset[str]


def asked_of(command: Sequence[str]) -> Asked | None:
    """None: it runs no job, or one that needs workers of its own."""
    if "onyx.cli" not in command:
        return None
    rest = command[command.index("run") + 1 :]
    options = dict(zip(rest[1::2], rest[2::2], strict=True))
    modules = frozenset(options.pop("--modules", "").split(","))
    processes = int(options.pop("--processes"))
    options.pop("--peers", None)  # each task has a worker to itself anyway (`Workers.submit`)
    if options or CHANGES_THE_ENGINE in modules:
        return None
    path = Path(rest[0])
    return Asked(yaml.safe_load(path.read_text()), path.parent, processes, modules)


class Workers:
    """Three processes on which jobs run, each as if it were alone."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers = count()
        self._pids = [each.working_pid for each in cluster.workers]

    def cpu_s(self) -> float:
        """Of all processes so far."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self._pids)

    def submit(self, asked: Asked) -> tuple[JobId, list[Path]]:
        """The job, and files that are there when the functions of its lifecycles have ended."""
        assert asked.modules <= {*MODULES, ""}, f"{asked.modules} are not those of the workers"
        spec, folder = asked.job["spec"], asked.folder
        (folder / onyx_run.STATE).symlink_to(self.cluster.settings.state.url)
        tasks = {name for edge in spec["workflow"] for name in edge}
        entries = [each for each in spec["catalog"] if each["name"] in tasks]
        for number, entry in enumerate(entries):
            if entry.get("nPeers", 1) == 1:
                entry["requiredTags"] = [f"w{number % asked.processes}"]
        ends = []
        for lifecycle in [*spec.get("lifecycles", [])]:
            options = {"folder": str(folder), "number": next(self._numbers)}
            calls = {"calls": "job_ends:calls", "options": options}
            spec["lifecycles"].append({"task": lifecycle["task"], **calls})
            its = [each for each in entries if lifecycle["task"] in (each["name"], "all")]
            ends += [folder / f"ended-{each['name']}-{options['number']}" for each in its]
        # By the client that is there: a new one reads the log from its start.
        return self.cluster.client.submit(parse_mapping(asked.job)).job, ends


class Running:
    """A job on workers that stay, as `subprocess.Popen` would show its `onyx run`."""

    def __init__(self, workers: Workers, asked: Asked) -> None:
        self._cluster = workers.cluster
        self._job, self._ends = workers.submit(asked)
        self.pid = self._cluster.workers[0].pid
        self.stdout = self
        self.returncode: int | None = None

    def __iter__(self) -> Iterator[str]:
        settings = self._cluster.settings
        yield f"--zookeeper {settings.zookeeper.address} --tenancy {settings.tenancy_id}\n"

    def read(self) -> str:
        return ""

    def poll(self) -> int | None:
        replica = self._cluster.replica
        if self._job in replica.killed_jobs:
            self.returncode = 1
        elif self._job in replica.completed_jobs and all(each.exists() for each in self._ends):
            self.returncode = 0
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        ends_s = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > ends_s:
                raise subprocess.TimeoutExpired("job", timeout_s)
            time.sleep(0.03)
        return code

    def communicate(self, timeout: float) -> tuple[str, None]:
        code = self.wait(timeout)
        return str(self._cluster.client.status(self._job).exception) if code else "", None

    def terminate(self) -> None:
        """Kills the job, as a user does who ends `onyx run`."""
        self._cluster.client.kill(self._job)


class Warm:
    """Runs what benchmarks start."""

    def __init__(self, workers: Workers, python: WarmPython, folder: Path) -> None:
        self._workers = workers
        self._python = python
        self._folder = folder

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> harness.Run:
        """In place of `harness.run`."""
        started_s = time.monotonic()
        asked = asked_of(command)
        if asked is not None:
            before_s = self._workers.cpu_s()
            job = Running(self._workers, asked)
            output, _ = job.communicate(timeout_s)
            done = harness.Run(
                time.monotonic() - started_s, self._workers.cpu_s() - before_s, 1, output
            )
            code = job.returncode
        elif "onyx.cli" in command:
            return RUN(command, environment, timeout_s)
        else:
            place = command.index(sys.executable)
            added = dict(each.split("=", 1) for each in command[1:place])
            path = self._folder / "output.txt"
            ended = self._python.run(command[place + 1 :], {**environment, **added}, path)
            wall_s = time.monotonic() - started_s
            done = harness.Run(wall_s, ended.cpu_s, ended.rss_peak_bytes, path.read_text())
            code = ended.code
        if code:
            raise RuntimeError(f"{' '.join(command)}: exit {code}\n{done.output[-3000:]}")
        return done

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
        """In place of `onyx_run.start`."""
        asked = asked_of(command)
        if asked is None:
            return START(command, environment or {})
        extents_max = (environment or {}).get("ONYX_STATE_MEMORY_EXTENTS_MAX", str(EXTENTS_MAX))
        assert extents_max == str(EXTENTS_MAX), "workers keep another number in memory"
        return Running(self._workers, asked)

    def fresh(self, work: Any, *arguments: object) -> Any:
        """In place of `harness.fresh`."""
        return self._python.call(work, arguments)


RUN, START = harness.run, onyx_run.start


@pytest.fixture(scope="module")
def warm(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    folder = tmp_path_factory.mktemp("benchmarks")
    path = (onyx_run.JOBS, nexmark.EXAMPLE, CONTENDERS, HERE)
    cluster = Cluster(
        zookeeper.address, folder, onyx_run.JOBS / "bench_probe.py", SESSION_S, path=path
    )
    state = replace(
        cluster.settings.state, memory_extents_max=EXTENTS_MAX, scratch_dir=str(folder / "scratch")
    )
    cluster.settings = replace(cluster.settings, modules=MODULES, state=state)
    with cluster, closing(WarmPython(IMPORTED, path, folder)) as python:
        cluster.start_workers(3, PEERS)
        yield Warm(Workers(cluster), python, folder)
        for worker in cluster.workers:
            worker.terminate()
        for worker in cluster.workers:
            worker.wait()  # so that their CPU counts among what the tests took


@pytest.fixture(scope="module")
def bench_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where data sets are made, for all benchmarks."""
    return tmp_path_factory.mktemp("bench-data")


@pytest.fixture
def warm_starts(warm: Warm, bench_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks start what they start in warm processes."""
    monkeypatch.setattr(data, "ROOT", bench_data)
    monkeypatch.setattr(onyx_run, "start", warm.start)
    monkeypatch.setattr(harness, "run", warm.run)
    monkeypatch.setattr(harness, "fresh", warm.fresh)
