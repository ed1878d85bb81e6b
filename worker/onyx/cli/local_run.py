"""One job on a cluster of its own on this machine: a log and worker processes for the time of a
block, with which settings.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.following import follow
from onyx.cli.functions import check_functions, named_modules
from onyx.cli.job_file import read_file, read_job, refuse, warn
from onyx.cli.local_peers import Crew, fewest_peers
from onyx.cli.local_server import TENANCY, local_log
from onyx.cli.options import EngineChoice, saved_place
from onyx.cli.progress import JobProgress
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.client.statuses import JobStatus
from onyx.errors import Problem, UserError
from onyx.ids import JobId
from onyx.log.opening import led_to
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.text import located
from onyx.model.plugins import takes_requests
from onyx.processes.forking import Launcher
from onyx.processes.supervisor import Supervisor
from onyx.processes.surroundings import configure_logs, import_from, is_set, settings
from onyx.settings import Settings
from onyx.submission.here import nothing_since, why_not_here
from onyx.submission.key_types import keys_in_vain
from onyx.telemetry.logs import follow_settings
from onyx.upgrade.plan import beginning_with
from onyx.user_code.breakpoints import lending

if TYPE_CHECKING:
    from onyx.console.serve import ConsoleOptions

serve = ModuleOnDemand("onyx.console.serve", extra="console")
_QUIET: Mapping[str, Any] = {"log_level": "WARNING", "log_failures": False}
"""Settings of telemetry beside a job that somebody watches, unless variables give others."""
HTTP = "http"
"""The plugin of inputs that take requests over HTTP."""
TOKEN_OPTIONS = {"tokenFile", "tokenEnv"}
INTERRUPTED_PATIENCE_S = 2.0
"""For workers to leave when the run is given up: a function that hangs does not come back."""


def checked(
    file: Path,
    modules: Sequence[str] | None,
    engine: EngineChoice | None,
    log_level: str | None,
    begins_with: str | None = None,
) -> tuple[Job, Settings]:
    """The job of a file, and settings of the workers that run it; this process logs as they say.

    Args:
        file: beside which modules are looked for.
        modules: as of `settings_for`.
        engine: what is to run it, whatever the file says.
        log_level: as of `settings_for`.
        begins_with: the place of a savepoint.

    Raises:
        ManifestError: it is not valid; or a function is not there, or cannot be called as Onyx
            calls it.
    """
    job = read_job(file, engine=engine)
    import_from(file.parent, Path())
    found = _beside(settings_for(job, modules, log_level), file.parent, Path())
    if begins_with is not None:
        job = beginning_with(job, saved_place(begins_with, found))
    check_functions(job, file, found)
    configure_logs(found.telemetry)
    return job, found


def refuse_here(
    job: Job, found: Settings, file: Path, replaces: bool, resumes: bool, fewest: bool
) -> None:
    """Warn of what `done_in_vain` finds; the other arguments as of `why_not_here`.

    Raises:
        ManifestError: something is missing where the job is to run, or its rows would stand beside
            those of another run.
    """
    refuse(why_not_here(job, found, file, replaces, resumes), file)
    warn(located(done_in_vain(job, found, fewest, resumes), read_file(file), str(file)))


def done_in_vain(job: Job, found: Settings, fewest: bool, resumes: bool = False) -> list[Problem]:
    """What of a job would have no effect here, though it may begin.

    Args:
        fewest: whether it has as few peers as it needs.
        resumes: whether it has begun before.
    """
    few = fewest_peers(job) if fewest else []
    return [*few, *keys_in_vain(job, found), *([] if resumes else nothing_since(job, found))]


def _beside(found: Settings, *folders: Path) -> Settings:
    """Settings of workers whose jobs may name these folders too."""
    named = found.job_paths or ((found.data_dir,) if found.data_dir else ())
    return replace(found, job_paths=(*named, *(str(each.resolve()) for each in folders)))


def settings_for(job: Job, modules: Sequence[str] | None, log_level: str | None = None) -> Settings:
    """Settings of the workers that run a job.

    Args:
        modules: whose functions the job may name; those that it names, if None.
        log_level: of the workers; that of the variables, or else WARNING, if None.
    """
    found = settings(modules=named_modules(job) if modules is None else list(modules))
    quiet = {name: value for name, value in _QUIET.items() if not is_set(f"telemetry_{name}")}
    telemetry = replace(found.telemetry, **quiet)
    if log_level is not None:
        telemetry = replace(telemetry, log_level=log_level)
    http = found.http
    if http.port is None and any(
        each.plugin == HTTP for each in job.catalog if each.type == "input"
    ):
        http = replace(http, port=0)
    return replace(found, telemetry=telemetry, http=http).of(TENANCY)


def run_here(
    job: Job,
    found: Settings,
    crew: Crew,
    as_json: bool = False,
    timeout_s: float | None = None,
    begun: tuple[Settings, Launcher] | None = None,
    console: ConsoleOptions | None = None,
    kept: Kept | None = None,
) -> tuple[JobStatus, JobProgress]:
    """Run a job to its end, with progress meanwhile, and say what became of it, and before it why
    there are several processes.

    Args:
        job: what is run.
        found: settings of the workers.
        crew: what runs it.
        as_json: whether what became of it is printed for programs.
        timeout_s: after so long it is given up; never, if None.
        begun: what has begun already, as of `local_cluster`.
        console: of pages about it; None: there are none.
        kept: where the log stays; None: nowhere.
    """
    if crew.why:
        print(crew.why, file=sys.stderr, flush=True)
    with local_cluster(found, crew.peers, begun) as (client, workers, there):
        ways = ways_in(job, there, workers.http_port)
        going = interrupted(client, job, kept) if kept is not None and kept.resume else None
        for each in client.replica().jobs:  # in a log that is kept, of a run that was killed
            if each != going:
                client.kill(each)
        stays, folder = kept is not None, Path(there.log.folder)
        drawn = (sys.stderr if as_json else sys.stdout).isatty()
        with _shown(client, there, console), lending(folder, drawn) as loan:
            return follow(client, workers, job, as_json, timeout_s, ways, going, stays, loan, there)


class Kept(NamedTuple):
    """A log that stays."""

    folder: Path
    resume: bool
    """Whether the job that was interrupted there goes on, and no other begins."""


def interrupted(client: Client, job: Job, kept: Kept) -> JobId:
    """The job in a kept log that has not ended.

    Raises:
        UserError: there is none, or it is another one than the file says.
    """
    left = client.replica().jobs
    if not left:
        raise UserError(
            f"no job was interrupted in {kept.folder}: leave --resume out to run {job.name} there"
        )
    same = [each for each in left if client.job(each) == job]
    if not same:
        names = ", ".join(sorted(client.job(each).name for each in left))
        raise UserError(
            f"the job that was interrupted in {kept.folder} ({names}) is not the one of the file: "
            "give the file as it was, or leave --resume out, which ends that job and runs this one"
        )
    return same[-1]


@contextmanager
def _shown(client: Client, there: Settings, options: ConsoleOptions | None) -> Iterator[None]:
    """Pages about what runs in the block; at a terminal they stay until Ctrl-C."""
    if options is None:
        yield
        return
    with serve.serving(client, there, options) as address:
        print(f"the console is at {address}", file=sys.stderr, flush=True)
        yield
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            print(f"still at {address}: press Ctrl-C to end", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()


@contextmanager
def local_cluster(
    found: Settings,
    peers: list[int],
    begun: tuple[Settings, Launcher] | None = None,
) -> Iterator[tuple[Client, Supervisor, Settings]]:
    """A log and workers, and what leads to them; all gone at the end.

    Args:
        found: settings of all.
        peers: of each worker process.
        begun: a log and what starts workers (`local_log`), which belong to the caller; those of
            this cluster, if None.
    """
    with ExitStack() as stack:
        log, launcher = begun or stack.enter_context(local_log(found))
        there = led_to(found, Path(log.log.folder))
        follow_settings(there.telemetry)
        workers = Supervisor(there, peers, launcher)
        patience_s = None
        try:
            workers.start()
            with connect(there) as client:
                yield client, workers, there
        except BaseException:
            patience_s = INTERRUPTED_PATIENCE_S
            raise
        finally:
            workers.stop(patience_s, lambda what: print(what, file=sys.stderr, flush=True))


def ways_in(job: Job, settings: Settings, http_port: int | None) -> str:
    """How to hand segments to a job that runs, a line for each input that takes some."""
    return "".join(
        f"to hand segments to {entry.name}: {_way_in(job, entry, settings, http_port)}\n"
        for entry in job.catalog
        if takes_requests(entry.type, entry.plugin)
    )


def _way_in(job: Job, entry: CatalogEntry, settings: Settings, http_port: int | None) -> str:
    if entry.plugin != HTTP or http_port is None:
        there = f"--log {settings.log.folder} --tenancy {settings.tenancy_id}"
        secret = " --token-file FILE" if entry.options.keys() & TOKEN_OPTIONS else ""
        return f"onyx append {job.name} {entry.name} {there}{secret}"
    url = f"http://127.0.0.1:{http_port}/jobs/{quote(job.name, '')}/{quote(entry.name, '')}"
    token = " -H 'Authorization: Bearer TOKEN'" if entry.options.keys() & TOKEN_OPTIONS else ""
    return f"curl {url} -H 'Content-Type: application/json'{token} -d '{{...}}'"
