"""`onyx run`: a whole cluster for one job on this machine, from start to end.

An embedded ZooKeeper in a temporary folder, worker processes, the job; its progress while it runs
and what became of it. The functions that the job names are the user's own on the user's own
machine, so unless `--modules` narrows it, exactly the modules named in the job file are loaded, and
they are looked for beside it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import signal
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

from onyx.cli.commands.validate import unresolved
from onyx.cli.job_file import EngineOption, read_job
from onyx.cli.options import JsonOption, ModulesOption, import_from, settings
from onyx.cli.processes.supervisor import Supervisor
from onyx.cli.progress import Progress
from onyx.cli.status_table import print_stacks, remarks
from onyx.cli.watcher import Watcher
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.statuses import JobStatus
from onyx.errors import ManifestError, OnyxError, UserError
from onyx.ids import JobId
from onyx.log.server.environment import start_env
from onyx.model.functions import function_names
from onyx.model.job import Job
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.submission.plugin_options import wrong_options
from onyx.telemetry.logs import configure

SAMPLE_INTERVAL_S = 0.5
PLAIN_INTERVAL_S = 5.0


class JobTimedOut(OnyxError):
    """The job took longer than --timeout allows."""


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
    log_level: Annotated[str, typer.Option("--log-level", help="Of the workers.")] = "WARNING",
    as_json: JsonOption = False,
) -> None:
    """Run a job on this machine: ZooKeeper, workers and all.

    Ends when the job has ended: 0 when it completed, 1 when it failed, 2 when it is not valid. The
    modules that the job names are looked for beside the job file and in the current folder.
    """
    job = read_job(file, engine=engine)
    if problems := wrong_options(job):
        raise ManifestError(problems)
    import_from(file.parent, Path())
    found = _settings(job, modules, log_level)
    if wrong := [each for each in unresolved(job, found.modules) if not in_options(each.path)]:
        raise ManifestError(wrong)
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
        status = _follow(client, workers, job, as_json, timeout)
    if status.state != "completed":
        raise typer.Exit(1)


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
        modules = sorted(_modules(job))
    found = settings(modules=modules)
    telemetry = dataclasses.replace(
        found.telemetry, metrics_port=0, log_level=log_level, log_failures=False
    )
    return dataclasses.replace(found, telemetry=telemetry, tenancy_id="run")


def in_options(path: str) -> bool:
    """Text there may look like a function's name and be something else; its plugin knows."""
    return ".options." in path


def _modules(job: Job) -> set[str]:
    named = {path: name.partition(":")[0] for path, name in function_names(job)}
    return {module for path, module in named.items() if not in_options(path) or _exists(module)}


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


@contextmanager
def _cluster(found: Settings, peers: list[int]) -> Iterator[tuple[Client, Supervisor]]:
    """ZooKeeper and workers; all gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="onyx-run-"))
    env = start_env(found, folder)
    workers = Supervisor(env.settings, peers)
    try:
        workers.start()
        with connect(env.settings) as client:
            yield client, workers
    finally:
        workers.stop()
        # Nothing of this cluster is read again: an orderly end of ZooKeeper would only take time.
        env.server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _follow(
    client: Client,
    workers: Supervisor,
    job: Job,
    as_json: bool,
    timeout_s: float | None,
) -> JobStatus:
    """Submit, show progress until the end, and print what became of it."""
    progress = Progress(job)
    console = Console(stderr=as_json)
    submission = client.submit(job)
    try:
        _watch(client, workers, submission.job, progress, console, timeout_s)
    except BaseException:
        client.kill(submission.job)
        raise
    status = client.status(submission.job)
    if as_json:
        rows = [msgspec.to_builtins(row) for row in progress.rows(average=True)]
        print(json.dumps({**msgspec.to_builtins(status), "tasks": rows}))
    else:
        if not console.is_terminal:
            console.print(progress.table(f"job {job.name}", average=True))
        note = remarks(status)
        console.print(
            f"job {job.name} is {status.state}{': ' + note if note else ''}",
            markup=False,
            soft_wrap=True,
        )
        print_stacks(status, console)
    return status


def _watch(
    client: Client,
    workers: Supervisor,
    job: JobId,
    progress: Progress,
    console: Console,
    timeout_s: float | None,
) -> None:
    latest: list[Replica] = [client.replica()]
    ended = threading.Event()

    def look(_: object, replica: Replica) -> None:
        latest[0] = replica
        if job in replica.completed_jobs or job in replica.killed_jobs:
            ended.set()

    waited_s, shown_s = 0.0, 0.0
    watcher = Watcher(client, job)
    with client.follow(look), Live(console=console, auto_refresh=False, transient=False) as live:
        while not ended.wait(SAMPLE_INTERVAL_S):
            waited_s += SAMPLE_INTERVAL_S
            progress.sample(latest[0])
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
        progress.sample(latest[0])
        if console.is_terminal:
            live.update(progress.table("done", average=True), refresh=True)
