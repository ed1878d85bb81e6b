"""How soon a job goes on after a worker was killed. `python -m benchmarks.recovery`

Three worker processes share a state log on the local disk; the input fills the state of a grouped
window and then goes on with few segments. One of the processes that hold state gets SIGKILL.

*First result*: from the kill to the first result of a group that this process had. The cluster
notices a death when its session ends, so this cannot be less than the session timeout. *Restored*:
from the new allocation, which is made then, until every peer of the job has said that it is ready,
which it does when its state is there. A small state measures the first, 1 GB on disk the second.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import onyx_run
from benchmarks.figures import Figure, Measured, Options, parser, run
from msgspec.structs import replace
from tests.support.servers.cluster import Cluster, Worker

from onyx.ids import JobId, TaskName
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import StateSettings

T = TypeVar("T")

MODULE = onyx_run.JOBS / "bench_state.py"
KEEPER = TaskName("keep")
PAYLOAD_BYTES = 1_000
FILL_SMALL = 1_000
"""Groups, of which each takes a kilobyte on the disk."""
SESSION_TIMEOUT_S = 6.0
GOAL_RESTORED_S = 30.0
GOAL_RESULT_S = SESSION_TIMEOUT_S + 5.0
WORKERS, PEERS = 3, 2
TRICKLE_KEYS = 20
FILL_TIMEOUT_S = 600.0
RECOVERY_TIMEOUT_S = 180.0
SETTLE_S = 5.0
"""From the last group filled to the kill: what was read is complete and checkpointed."""
POLL_S = 0.05

Results = list[tuple[float, int, str]]
"""When a result arrived (CLOCK_MONOTONIC, in s), which process made it, and of which group."""


@dataclass(frozen=True)
class Recovery:
    """Times after the kill, in seconds, and what was there to be restored."""

    groups: int
    state_mib: float
    filled_s: float
    """From the job's start until all groups were there."""
    noticed_s: float
    """Until the new allocation."""
    ready_s: float
    """Until every peer was ready."""
    first_result_s: float


def recovery(groups: int, folder: Path) -> Recovery:
    """Fill a state of so many groups, kill, and wait for results."""
    with (
        ZooKeeperServer(folder / "zookeeper") as server,
        Cluster(server.address, folder, MODULE, SESSION_TIMEOUT_S) as cluster,
    ):
        state = folder / onyx_run.STATE
        cluster.settings = replace(cluster.settings, state=StateSettings(url=str(state)))
        cluster.start_workers(WORKERS, PEERS)
        started_s = time.monotonic()
        job = cluster.submit(manifest(groups, folder))
        until("the state is filled", lambda: is_filled(cluster, job, folder), FILL_TIMEOUT_S)
        filled_s = time.monotonic() - started_s
        time.sleep(SETTLE_S)
        return Recovery(groups, onyx_run.size_mib(state), filled_s, *killed(cluster, job, folder))


def manifest(groups: int, folder: Path) -> dict[str, Any]:
    job = onyx_run.manifest("recovery.yaml")
    read = job["spec"]["catalog"][0]["options"]
    read.update(fill=groups, payloadBytes=PAYLOAD_BYTES, trickleKeys=TRICKLE_KEYS)
    job["spec"]["lifecycles"][0]["options"]["folder"] = str(folder)
    return job


def killed(cluster: Cluster, job: JobId, folder: Path) -> tuple[float, float, float]:
    """Kill a worker that holds state; when that was noticed, all were ready, a result was there."""
    victim = holder(cluster, job)
    version = cluster.replica.run(job).allocation_version
    working_pid = victim.working_pid
    had = {group for _, process, group in results(folder) if process == working_pid}
    killed_s = time.monotonic()
    victim.kill()
    cluster.until(
        lambda replica: replica.run(job).allocation_version > version, "the death is noticed"
    )
    noticed_s = time.monotonic()
    cluster.await_ready(job, RECOVERY_TIMEOUT_S)
    ready_s = time.monotonic()

    def first() -> float | None:
        return first_of(had, results(folder), working_pid, killed_s)

    result_s = until("a result of a group of the killed worker", first, RECOVERY_TIMEOUT_S)
    return noticed_s - killed_s, ready_s - killed_s, result_s - killed_s


def holder(cluster: Cluster, job: JobId) -> Worker:
    """A worker with state; if possible, one that does not read as well."""
    tasks = cluster.replica.run(job).allocation
    workers = {task: [cluster.worker_of(peer) for peer in peers] for task, peers in tasks.items()}
    readers = [worker for task, each in workers.items() if task != KEEPER for worker in each]
    return min(workers[KEEPER], key=lambda worker: worker in readers)


def results(folder: Path) -> Results:
    """What has arrived by now (`bench_state.tell`)."""
    found: Results = []
    for path in folder.glob("results-*.txt"):
        for line in path.read_text().split("\n")[:-1]:
            at_s, process, group = line.split()
            found.append((float(at_s), int(process), group))
    return found


def is_filled(cluster: Cluster, job: JobId, folder: Path) -> bool:
    """Whether results of all groups that come after the filling have arrived.

    Raises:
        RuntimeError: the job has been killed.
    """
    if job in cluster.replica.killed_jobs:
        raise RuntimeError(f"the job was killed: {cluster.client.status(job).exception}")
    return len({group for _, _, group in results(folder)}) == TRICKLE_KEYS


def first_of(groups: set[str], results: Results, dead: int, since_s: float) -> float | None:
    """When the first result arrived of one of the groups that another process has made."""
    times = [
        at_s
        for at_s, process, group in results
        if process != dead and at_s > since_s and group in groups
    ]
    return min(times, default=None)


def until(what: str, look: Callable[[], T | None], timeout_s: float) -> T:
    """Wait until `look` finds something."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(POLL_S)
    return found


def measure(options: argparse.Namespace) -> Measured:
    found = []
    for groups in sorted({FILL_SMALL, options.groups}):
        with tempfile.TemporaryDirectory(prefix="onyx-bench-") as folder:
            found.append(recovery(groups, Path(folder)))
    return Measured(figures(found[0], found[-1]), [asdict(each) for each in found])


def figures(small: Recovery, large: Recovery) -> list[Figure]:
    size = f"{large.state_mib * 2**20 / 1e9:.2f} GB of state"
    return [
        Figure(
            "first result after a kill", small.first_result_s, "s", GOAL_RESULT_S,
            note=f"noticed after {small.noticed_s:.1f} s; session timeout {SESSION_TIMEOUT_S:g} s",
        ),
        Figure(
            f"{size} restored", large.ready_s - large.noticed_s, "s", GOAL_RESTORED_S,
            note=f"filled in {large.filled_s:.0f} s; first result {large.first_result_s:.1f} s "
            "after the kill",
        ),
    ]  # fmt: skip


def options() -> Options:
    made = parser(__doc__)
    made.sized("--groups", 1_000_000, 50_000, FILL_SMALL, "of about a kilobyte each")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
