"""`onyx run`: a whole cluster for one job on this machine, from start to end.

An embedded ZooKeeper in a temporary folder, worker processes, the job; its progress while it runs
and what became of it. The functions that the job names are the user's own on the user's own
machine, so unless `--modules` narrows it, exactly the modules named in the job file are loaded, and
they are looked for beside it.
"""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Annotated

import typer

from onyx.cli.following import follow
from onyx.cli.functions import check_functions, named_modules
from onyx.cli.job_file import EngineOption, read_job
from onyx.cli.local_cluster import HTTP, local_cluster, ways_in
from onyx.cli.options import JsonOption, ModulesOption, import_from, settings
from onyx.errors import OnyxError, UserError
from onyx.model.job import Job
from onyx.settings import Settings
from onyx.telemetry.logs import configure


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
    total = _peers_in_all(job, peers, processes)
    signal.signal(signal.SIGTERM, _interrupt)
    with local_cluster(found, deal(total, processes)) as (client, workers, there):
        ways = ways_in(job, there, workers.http_port)
        status, progress = follow(client, workers, job, as_json, timeout, ways)
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


def _peers_in_all(job: Job, peers: int | None, processes: int) -> int:
    needed = minimum_peers(job)
    total = max(needed, processes) if peers is None else peers
    if total < needed:
        raise UserError(
            f"job {job.name} needs {needed} peers, --peers gives {total}: give more, or leave "
            "--peers out"
        )
    return total


def _interrupt(*_: object) -> None:
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
    http = found.http
    if http.port is None and any(
        each.plugin == HTTP for each in job.catalog if each.type == "input"
    ):
        http = dataclasses.replace(http, port=0)
    return dataclasses.replace(found, telemetry=telemetry, http=http, tenancy_id="run")
