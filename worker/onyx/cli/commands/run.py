"""`onyx run`: a whole cluster for one job on this machine, from start to end.

A log in a temporary folder, worker processes, the job; its progress while it runs
and what became of it. The functions that the job names are the user's own on the user's own
machine, so unless `--modules` narrows it, exactly the modules named in the job file are loaded, and
they are looked for beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.command_line import Argument, Option
from onyx.cli.local_server import TENANCY, check_kept, local_log
from onyx.cli.options import EngineOption, FromOption, JsonOption, ModulesOption
from onyx.errors import OnyxError, SettingsError
from onyx.processes.surroundings import interrupted_by_sigterm, settings

if TYPE_CHECKING:
    from onyx.cli.progress import JobProgress
    from onyx.model.job import Job

local_peers = ModuleOnDemand("onyx.cli.local_peers")
local_run = ModuleOnDemand("onyx.cli.local_run")
outcomes = ModuleOnDemand("onyx.reports.outcomes")
serve = ModuleOnDemand("onyx.console.serve", extra="console")
SHARED = ("onyx.client.connection", "onyx.log.local.log")
"""What this command and workers need: clients of the log, the model of jobs, the replica."""
ProcessesOption = Annotated[
    int | None,
    Meta(ge=1),
    Option(
        "--processes",
        "Worker processes; one, or up to one a core where files are large, if left out.",
    ),
]
DeadLettersOption = Annotated[
    int | None,
    Meta(ge=0),
    Option(
        "--fail-on-dead-letters",
        "End with 1 if so many segments went to dead letters, or more; without it, if all did.",
        metavar="N",
    ),
]
LogLevelOption = Annotated[
    str | None,
    Option(
        "--log-level", "Of the workers; ONYX_TELEMETRY_LOG_LEVEL, or else WARNING, if left out."
    ),
]
KeepOption = Annotated[
    Path | None,
    Option(
        "--keep",
        "Leave log and state there, for `onyx console --kept` and --resume.",
        metavar="FOLDER",
    ),
]
ResumeOption = Annotated[
    bool,
    Option("--resume", "Go on with the job that was interrupted in the folder of --keep."),
]
ReplaceOption = Annotated[
    bool,
    Option(
        "--replace", "Remove the parts of other jobs and runs from the folders of outputs first."
    ),
]


class TooManyDeadLetters(OnyxError):
    """More segments failed than --fail-on-dead-letters allows, or than a run without it does."""


def run(
    file: Annotated[Path, Argument("Job file (an OnyxJob manifest).")],
    peers: Annotated[
        int | None,
        Option("--peers", "Virtual peers in all; as many as the job needs if left out."),
    ] = None,
    processes: ProcessesOption = None,
    modules: ModulesOption = None,
    engine: EngineOption = None,
    timeout: Annotated[float | None, Option("--timeout", "Give up after so many seconds.")] = None,
    fail_on_dead_letters: DeadLettersOption = None,
    log_level: LogLevelOption = None,
    console: Annotated[
        bool,
        Option("--console", "Show the job in a browser; at a terminal also after its end."),
    ] = False,
    keep: KeepOption = None,
    resume: ResumeOption = False,
    replace: ReplaceOption = False,
    begins_with: FromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job on this machine: log, workers and all.

    Ends when the job has ended: 0 when it completed, 1 when it failed, 2 when it is not valid. The
    modules that the job names are looked for beside the job file and in the current folder. Nothing
    begins where a package or a file is missing, or where an output has parts of another run. At the
    end it says which segments went to dead letters, matched no flow condition, or came late. When
    all went to dead letters, it ends with 1 too.
    """
    given = settings()
    if resume and keep is None:
        raise SettingsError("--resume goes on in a folder: say with --keep in which one")
    if resume and replace:
        raise SettingsError("--resume goes on with what --replace would remove: give one of them")
    if keep is not None and resume:
        check_kept(keep, TENANCY)
    options = serve.ConsoleOptions(port=0) if console else None
    # While this process imports the rest of itself and checks the job, what forks the workers
    # imports what they need besides.
    with interrupted_by_sigterm(), local_log(given, keep, SHARED) as (there, launcher):
        kept = None if keep is None else local_run.Kept(keep, resume)
        job, found = local_run.checked(file, modules, engine, log_level, begins_with)
        crew = local_peers.crew_here(job, found, peers, processes)
        local_run.refuse_here(job, found, file, replace, resume, crew.fewest)
        status, progress = local_run.run_here(
            job, found, crew, as_json, timeout, (there, launcher), options, kept
        )
    if status.state != "completed":
        sys.exit(1)
    _check_dead_letters(job, progress, fail_on_dead_letters)


def _check_dead_letters(job: Job, progress: JobProgress, most: int | None) -> None:
    found = progress.dead_letters
    if most is not None and found >= max(most, 1):
        raise TooManyDeadLetters(
            f"{outcomes.segments_in_words(found)} went to dead letters, and the command fails on "
            f"{most:,} (--fail-on-dead-letters)"
        )
    if most is None and (failed := progress.all_failed):
        raise TooManyDeadLetters(
            f"job {job.name} has no result: all segments of {', '.join(failed)} failed, and no "
            "output but dead letters got any; mend what the first error says, or allow it with "
            "--fail-on-dead-letters N"
        )
