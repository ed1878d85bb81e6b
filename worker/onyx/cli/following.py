"""Submits a job and follows it to its end, with what a person sees meanwhile."""

from __future__ import annotations

import sys
import threading

from rich.console import Console
from rich.live import Live

from onyx.cli.ending import print_end
from onyx.cli.progress import Progress
from onyx.cli.watcher import Watcher
from onyx.client.client import Client
from onyx.client.statuses import JobStatus
from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.model.job import Job
from onyx.model.tracking import loses_track
from onyx.model.workflow import topological_order
from onyx.processes.supervisor import Supervisor
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica

SAMPLE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 5.0
"""Between two lines where nobody watches. Nothing is asked of ZooKeeper in between: a question is a
dozen requests, a third of what an idle job costs."""


class JobTimedOut(OnyxError):
    """The job took longer than --timeout allows."""


def follow(
    client: Client,
    workers: Supervisor,
    job: Job,
    as_json: bool,
    timeout_s: float | None,
    ways_in: str = "",
) -> tuple[JobStatus, Progress]:
    """Submit, show progress until the end, and print what became of it.

    Args:
        ways_in: is printed when all workers take requests, and the job does.
    """
    console = Console(stderr=as_json)
    submission = client.submit(job)
    tasks = topological_order(job.workflow)
    progress = Progress(job, lambda: workers.totals(submission.job, tasks))
    watcher = Watcher(client, job, submission.job)
    try:
        running = _watch(client, workers, watcher, progress, console, timeout_s, ways_in)
    except BaseException:
        client.kill(submission.job)
        raise
    status = client.status(submission.job)
    progress.sample(client.completed_positions(running, job, submission.job))
    if status.state == "completed" and not loses_track(job):
        progress.settle()
    print_end(job, status, progress, console, as_json)
    return status, progress


def _watch(
    client: Client,
    workers: Supervisor,
    watcher: Watcher,
    progress: Progress,
    console: Console,
    timeout_s: float | None,
    ways_in: str,
) -> Replica:
    """Show progress until the job has ended; the last replica in which its inputs are known."""
    job = watcher.job
    latest: list[Replica] = [client.replica()]
    running = latest[0]
    ended = threading.Event()

    def look(_: object, replica: Replica) -> None:
        nonlocal running
        latest[0] = replica
        if replica.partitions(job):
            running = replica
        if has_completed(replica, job) is not None:
            ended.set()

    waited_s, shown_s = 0.0, 0.0
    following = client.follow(look, failed=ended.set)
    with following, Live(console=console, auto_refresh=False, transient=False) as live:
        while not ended.wait(SAMPLE_INTERVAL_S):
            waited_s += SAMPLE_INTERVAL_S
            if ways_in and is_ready(latest[0], job, workers.peers):
                print(ways_in, end="", file=sys.stderr, flush=True)
                ways_in = ""
            if console.is_terminal or waited_s - shown_s >= PLAIN_INTERVAL_S:
                shown_s = waited_s
                _show(watcher.title(latest[0], waited_s), watcher, progress, console, live)
            if (failure := workers.failure) is not None:
                raise failure
            if timeout_s is not None and waited_s >= timeout_s:
                raise JobTimedOut(f"the job had not ended after {timeout_s:g} s and was killed")
        progress.sample(watcher.completed)
        if console.is_terminal:
            live.update(progress.table("done", average=True), refresh=True)
    return running


def _show(title: str, watcher: Watcher, progress: Progress, console: Console, live: Live) -> None:
    """Show how far the job is, and what is new."""
    progress.sample(watcher.completed)
    if console.is_terminal:
        live.update(progress.table(title), refresh=True)
    else:
        console.print(f"{title}: {progress.line()}", markup=False, soft_wrap=True)
    for line in watcher.news():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def is_ready(replica: Replica, job: JobId, peers: int) -> bool:
    """Whether so many peers take part in the cluster, and those that work on the job are ready."""
    run = replica.run(job)
    working = {peer for peers in run.allocation.values() for peer in peers}
    return len(replica.peers) >= peers and bool(working) and working.issubset(run.ready)
