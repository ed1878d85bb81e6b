"""`onyx run`: a whole cluster for one job on this machine, from start to end.

An embedded ZooKeeper in a temporary folder, worker processes, the job; its progress while it runs
and what became of it. The functions that the job names are the user's own on the user's own
machine, so unless `--modules` narrows it, exactly the modules named in the job file are loaded, and
they are looked for beside it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live

from onyx.cli.functions import check_functions, named_modules
from onyx.cli.job_file import EngineOption, read_job
from onyx.cli.options import JsonOption, ModulesOption, import_from, settings
from onyx.cli.processes.supervisor import Supervisor
from onyx.cli.progress import Progress
from onyx.cli.status_table import print_stacks, why
from onyx.cli.watcher import Watcher
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.statuses import JobStatus
from onyx.errors import OnyxError, UserError
from onyx.ids import JobId
from onyx.log.server.environment import start_env
from onyx.model.job import Job
from onyx.model.workflow import topological_order
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.telemetry.logs import configure

SAMPLE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 5.0
INTERRUPTED_PATIENCE_S = 2.0
"""For workers to leave when the run is given up: a function that hangs does not come back."""


class JobTimedOut(OnyxError):
    """The job took longer than --timeout allows."""


class TooManyDeadLetters(OnyxError):
    """More segments failed than --fail-on-dead-letters allows."""


def run(
    file: Annotated[Path, typer.Argument(help="Job file (an OnyxJob manifest).")],
    peers: Annotated[
        int | None,
        typer.Option("--peers", help="Virtual peers in all; as many as the job needs if left out."),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", help="Worker processes.", min=1)] = 1,
    modules: ModulesOption = None,
    engine: EngineOption = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Give up after so many seconds.")
    ] = None,
    fail_on_dead_letters: Annotated[
        int | None,
        typer.Option(
            "--fail-on-dead-letters",
            help="End with 1 if so many segments went to dead letters, or more.",
            metavar="N",
            min=0,
        ),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="Of the workers.")] = "WARNING",
    as_json: JsonOption = False,
) -> None:
    """Run a job on this machine: ZooKeeper, workers and all.

    Ends when the job has ended: 0 when it completed, 1 when it failed, 2 when it is not valid. The
    modules that the job names are looked for beside the job file and in the current folder. At the
    end it says which segments went to dead letters, matched no flow condition, or came late.
    """
    job = read_job(file, engine=engine)
    found = _checked(file, job, modules, log_level)
    configure(found.telemetry.log_level, found.telemetry.log_format)
    needed = minimum_peers(job)
    total = max(needed, processes) if peers is None else peers
    if total < needed:
        raise UserError(
            f"job {job.name} needs {needed} peers, --peers gives {total}: give more, or leave "
            "--peers out"
        )
    signal.signal(signal.SIGTERM, _interrupt)
    with _cluster(found, deal(total, processes)) as (client, workers):
        status, progress = _follow(client, workers, job, as_json, timeout)
    if status.state != "completed":
        raise typer.Exit(1)
    most = fail_on_dead_letters
    if most is not None and progress.dead_letters >= max(most, 1):
        raise TooManyDeadLetters(
            f"{progress.dead_letters:,} segments went to dead letters, and the command fails on "
            f"{most:,} (--fail-on-dead-letters)"
        )


def _checked(file: Path, job: Job, modules: list[str] | None, log_level: str) -> Settings:
    """Settings of the workers that run a job.

    Raises:
        ManifestError: a function is not there, or cannot be called as Onyx calls it.
    """
    import_from(file.parent, Path())
    found = _settings(job, modules, log_level)
    check_functions(job, file, found)
    return found


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends everything as Ctrl-C does, in an orderly way."""
    raise KeyboardInterrupt


def minimum_peers(job: Job) -> int:
    """Peers without which the job does not start."""
    if job.engine == "spark":
        return 1
    used = {task for edge in job.workflow for task in edge}
    return sum(entry.n_peers or entry.min_peers or 1 for entry in job.catalog if entry.name in used)


def deal(peers: int, processes: int) -> list[int]:
    """So many peers over so many processes, as evenly as possible; none without a peer."""
    each, more = divmod(peers, processes)
    return [count for index in range(processes) if (count := each + (index < more))]


def _settings(job: Job, modules: list[str] | None, log_level: str) -> Settings:
    if modules is None:
        modules = named_modules(job)
    found = settings(modules=modules)
    telemetry = dataclasses.replace(
        found.telemetry, metrics_port=0, log_level=log_level, log_failures=False
    )
    return dataclasses.replace(found, telemetry=telemetry, tenancy_id="run")


@contextmanager
def _cluster(found: Settings, peers: list[int]) -> Iterator[tuple[Client, Supervisor]]:
    """ZooKeeper and workers; all gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
    env = start_env(found, folder)
    workers = Supervisor(env.settings, peers)
    patience_s = None
    try:
        workers.start()
        with connect(env.settings) as client:
            yield client, workers
    except BaseException:
        patience_s = INTERRUPTED_PATIENCE_S
        raise
    finally:
        workers.stop(patience_s, lambda what: print(what, file=sys.stderr, flush=True))
        # Nothing of this cluster is read again: an orderly end of ZooKeeper would only take time.
        env.server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _follow(
    client: Client,
    workers: Supervisor,
    job: Job,
    as_json: bool,
    timeout_s: float | None,
) -> tuple[JobStatus, Progress]:
    """Submit, show progress until the end, and print what became of it."""
    console = Console(stderr=as_json)
    submission = client.submit(job)
    tasks = topological_order(job.workflow)
    progress = Progress(job, lambda: workers.totals(submission.job, tasks))
    try:
        running = _watch(client, workers, submission.job, progress, console, timeout_s)
    except BaseException:
        client.kill(submission.job)
        raise
    status = client.status(submission.job)
    if status.state == "completed" and job.guarantee != "at-most-once" and job.engine != "spark":
        progress.complete(client.completed_positions(running, submission.job))
    if as_json:
        rows = [msgspec.to_builtins(row) for row in progress.rows(average=True)]
        outcomes = progress.remarks()
        print(json.dumps({**msgspec.to_builtins(status), "tasks": rows, "outcomes": outcomes}))
    else:
        if not console.is_terminal:
            console.print(progress.table(f"job {job.name}", average=True))
        note = why(status)
        console.print(
            f"job {job.name} is {status.state}{': ' + note if note else ''}",
            markup=False,
            soft_wrap=True,
        )
        print_stacks(status, console)
        for line in progress.remarks():
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    return status, progress


def _watch(
    client: Client,
    workers: Supervisor,
    job: JobId,
    progress: Progress,
    console: Console,
    timeout_s: float | None,
) -> Replica:
    """Show progress until the job has ended; the last replica in which its inputs are known."""
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
    watcher = Watcher(client, job)
    with client.follow(look), Live(console=console, auto_refresh=False, transient=False) as live:
        while not ended.wait(SAMPLE_INTERVAL_S):
            waited_s += SAMPLE_INTERVAL_S
            progress.sample()
            title = watcher.title(latest[0], waited_s)
            if console.is_terminal:
                live.update(progress.table(title), refresh=True)
            elif waited_s - shown_s >= PLAIN_INTERVAL_S:
                shown_s = waited_s
                console.print(f"{title}: {progress.line()}", markup=False, soft_wrap=True)
            for line in watcher.news():
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            if (failure := workers.failure) is not None:
                raise failure
            if timeout_s is not None and waited_s >= timeout_s:
                raise JobTimedOut(f"the job had not ended after {timeout_s:g} s and was killed")
        progress.sample()
        if console.is_terminal:
            live.update(progress.table("done", average=True), refresh=True)
    return running
