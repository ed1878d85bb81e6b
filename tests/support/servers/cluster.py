"""A cluster of real worker processes for one test, with a tenancy of its own.

The test kills, stops and continues workers by pid and follows the log as any client does. Every
worker carries a tag of its own, so its present incarnation is found in the replica. Whatever
happens to the test, no process is left: workers are killed at the end of the block, and die with
the process of the tests. They are forks (`processes.launcher`), as are workers under a supervisor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import psutil
from msgspec.structs import replace
from tests.support.patience import WAIT_S
from tests.support.servers.processes import ONYX, launcher, workers_of

import onyx
from onyx import api
from onyx.client.statuses import JobStatus
from onyx.errors import UserError
from onyx.ids import GroupId, JobId, PeerId
from onyx.log.interface import Origin
from onyx.processes.programs import Executable
from onyx.replica.command import Entry
from onyx.replica.state import Replica
from onyx.rights import of_its_author
from onyx.settings import (
    LogSettings,
    Settings,
    StateSettings,
    TelemetrySettings,
    TlsSettings,
    ZooKeeperSettings,
    to_environment,
)

T = TypeVar("T")

PENDING_TIMEOUT_MS = 3_600_000
"""The `pendingTimeout` of inputs that say none: a loss that is not replayed at once hangs, too."""
CLIENT_SESSION_S = 40.0
NOT_YET = "has not carried over the state"
"""Why a job cannot be upgraded that has just been submitted."""
_LOG_TAIL_CHARACTERS = 6_000


class Worker:
    """One worker process."""

    def __init__(self, tag: str, peers: int, environment: Mapping[str, str], log: Path):
        self.tag = tag
        self.log = log
        arguments = ["worker", "--peers", str(peers)]
        with open(os.devnull, "rb") as nothing, open(log, "ab") as output:
            streams = nothing.fileno(), output.fileno(), output.fileno()
            self._process = launcher().launch(
                Executable(ONYX, arguments, environment, streams=streams), zygote=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def working_pid(self) -> int:
        """Of the child that works; `pid` is its supervisor's."""
        (child,) = workers_of(psutil.Process(self.pid))
        return child.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """For a failed test: a process may end without a word."""
        code = self._process.poll()
        return "running" if code is None else f"ended with code {code}"

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP: from now on a zombie to be."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: asked to leave."""
        self._process.terminate()

    def wait(self) -> int:
        """Exit code, once it has ended."""
        return self._process.wait(WAIT_S)


class Cluster:
    """Use as a context manager; when the block fails, the ends of the workers' logs are printed."""

    def __init__(
        self,
        zookeeper: str | ZooKeeperSettings | Path,
        folder: Path,
        modules: Path,
        session_timeout_s: float = 2.0,
        tls: TlsSettings | None = None,
        path: Sequence[Path] = (),
        log_format: Literal["text", "json"] = "text",
    ) -> None:
        """
        Args:
            zookeeper: address of the server, or all that leads to it; or the folder of a log.
            folder: for logs of workers, and their working directory.
            modules: a file whose functions the jobs may name.
            session_timeout_s: of the workers' sessions.
            tls: between the workers; None means without.
            path: further folders in which workers look for modules.
            log_format: of the workers.
        """
        log = LogSettings(folder=str(zookeeper) if isinstance(zookeeper, Path) else "")
        if isinstance(zookeeper, str | Path):
            zookeeper = ZooKeeperSettings(str(zookeeper))
        self._folder = folder
        self._path = [Path(onyx.__file__).parents[1], modules.parent, *path]
        self.settings = Settings(
            tenancy_id=uuid.uuid4().hex,
            modules=(modules.stem,),
            zookeeper=replace(zookeeper, session_timeout_s=session_timeout_s),
            tls=tls or TlsSettings(),
            log=log,
            state=StateSettings(url=str(folder / "state")),
            telemetry=TelemetrySettings(log_level="INFO", log_format=log_format),
        )
        self.settings = of_its_author(self.settings)
        self.workers: list[Worker] = []
        self.entries: list[Entry] = []
        self.replica = Replica()
        self._changed = threading.Condition()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_workers)
            zookeeper = replace(self.settings.zookeeper, session_timeout_s=CLIENT_SESSION_S)
            settings = replace(self.settings, zookeeper=zookeeper, modules=())
            self.client = stack.enter_context(api.connect(settings))
            stack.enter_context(self.client.follow(self._deliver))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._show_logs()
        self._stack.close()

    # --- processes -----------------------------------------------------------------------------

    def start_worker(self, peers: int) -> Worker:
        """Start one more process; `await_members` waits until it takes part."""
        tag = f"w{len(self.workers)}"
        settings = replace(self.settings, tags=(tag,))
        environment = {
            **os.environ,
            **to_environment(settings),
            "PYTHONPATH": os.pathsep.join(map(str, self._path)),
            "PYTHONFAULTHANDLER": "1",
        }
        worker = Worker(tag, peers, environment, self._folder / f"{tag}.log")
        self.workers.append(worker)
        return worker

    def start_workers(self, count: int, peers: int) -> list[Worker]:
        """Start processes and wait until all their peers take part."""
        workers = [self.start_worker(peers) for _ in range(count)]
        self.await_members(workers, peers)
        return workers

    def await_members(self, workers: list[Worker], peers: int) -> None:
        """Wait until each of these has joined with so many peers."""

        def joined(replica: Replica) -> bool:
            return all(len(self._peers_of(replica, each)) == peers for each in workers)

        self.until(joined, f"{', '.join(each.tag for each in workers)} join")

    def group_of(self, worker: Worker) -> GroupId:
        """The present incarnation of a worker."""
        peers = self._peers_of(self.replica, worker)
        return self.replica.groups_reverse_index[peers[0]]

    def worker_of(self, peer: PeerId) -> Worker:
        """The process in which a virtual peer lives."""
        tags = self.replica.peer_tags[peer]
        return next(each for each in self.workers if each.tag in tags)

    def worker_in(self, group: GroupId) -> Worker:
        """The process whose incarnation this is."""
        return self.worker_of(self.replica.groups_index[group][0])

    # --- the log -------------------------------------------------------------------------------

    def submit(self, manifest: Mapping[str, Any]) -> JobId:
        return api.submit_job(self.settings, _without_late_replays(manifest)).job

    def submit_after(self, manifest: Mapping[str, Any], old: JobId) -> JobId:
        """Upgrade a job as soon as it has carried over the state of the one before it."""
        spec = {**manifest["spec"], "upgrade": {"from": old, **manifest["spec"].get("upgrade", {})}}
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                return self.submit({**manifest, "spec": spec})
            except UserError as error:
                if NOT_YET not in str(error) or time.monotonic() > until_s:
                    raise
                time.sleep(0.05)

    def until(self, condition: Callable[[Replica], T], what: str, wait_s: float = WAIT_S) -> T:
        """Wait until something holds of the replica (`what`, for the failure); its value."""
        with self._changed:
            found = self._changed.wait_for(lambda: condition(self.replica), wait_s)
        assert found, f"after {wait_s:.0f} s still not: {what}; the replica is {self.replica}"
        return found

    def await_ready(self, job: JobId, wait_s: float = WAIT_S) -> int:
        """Wait until every peer of a job is ready; the allocation version."""
        self.until(lambda replica: _is_ready(replica, job), f"job {job} is ready", wait_s)
        return self.replica.run(job).allocation_version

    def await_gone(self, groups: list[GroupId]) -> None:
        """Wait until the cluster has declared these dead."""
        self.until(
            lambda replica: not set(groups) & set(replica.groups), f"{groups} are declared dead"
        )

    def await_completed(self, job: JobId, wait_s: float = WAIT_S) -> None:
        """Wait until a job has completed; fails at once when it was killed."""
        self.until(
            lambda replica: job in (*replica.completed_jobs, *replica.killed_jobs),
            f"job {job} has ended",
            wait_s,
        )
        status: JobStatus = self.client.status(job)
        assert status.state == "completed", status

    def entries_by(self, writer: GroupId) -> list[Entry]:
        """What one incarnation has written, in order."""
        return [each for each in self._seen() if each.writer == writer]

    def entries_named(self, fn: str) -> list[Entry]:
        """Entries of one command, in order."""
        return [each for each in self._seen() if fn == each.command.NAME]

    def _seen(self) -> list[Entry]:
        with self._changed:
            return list(self.entries)

    def _deliver(self, item: Entry | Origin, replica: Replica) -> None:
        with self._changed:
            if isinstance(item, Entry):
                self.entries.append(item)
            self.replica = replica
            self._changed.notify_all()

    def _peers_of(self, replica: Replica, worker: Worker) -> list[PeerId]:
        return [peer for peer in replica.peers if worker.tag in replica.peer_tags.get(peer, ())]

    # --- the end -------------------------------------------------------------------------------

    def _end_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _show_logs(self) -> None:
        for entry in self._seen():
            print(entry.position, entry.writer[:8], entry.command)
        for worker in self.workers:
            text = worker.log.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:]
            print(f"--- {worker.tag} ({worker.state}):\n{text}")


def _without_late_replays(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = manifest["spec"]
    if spec.get("guarantee") == "at-most-once" or spec.get("engine") == "spark":
        return manifest  # which replay nothing
    late = {"pendingTimeout": PENDING_TIMEOUT_MS}
    catalog = [
        late | entry if entry["type"] == "input" and "guarantee" not in entry else entry
        for entry in spec["catalog"]
    ]
    return {**manifest, "spec": {**spec, "catalog": catalog}}


def _is_ready(replica: Replica, job: JobId) -> bool:
    """Whether a job has peers, and each has signalled ready for the present allocation."""
    return replica.run(job).is_ready
