"""What can be done with a job that is put together: check, look at, submit and run it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from onyx.builder.drawing import drawing
from onyx.cli.functions import missing, modules_here, wrong_here
from onyx.cli.job_file import warn
from onyx.cli.local_peers import crew_here
from onyx.cli.local_run import done_in_vain, run_here, settings_for
from onyx.client.calls import submit_job
from onyx.client.statuses import JobStatus, in_a_sentence
from onyx.client.submissions import Submission
from onyx.errors import InvariantViolated, ManifestError, OnyxError, Problem, UserError
from onyx.model import job as model
from onyx.model.notices import notices, unused_declaration
from onyx.model.parsing.job import parse_declared, parse_mapping
from onyx.processes.surroundings import import_from, interrupted_by_sigterm, settings
from onyx.rights import of_its_author
from onyx.settings import Settings, from_environment
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import render
from onyx.submission.here import not_here, why_not_here
from onyx.submission.job_checks import wrong_options, wrong_sql
from onyx.submission.key_types import keys_in_vain
from onyx.user_code.resolve import is_importing

P = ParamSpec("P")
T = TypeVar("T")


class JobFailed(OnyxError):
    """A job that was run has not completed."""

    def __init__(self, status: JobStatus) -> None:
        super().__init__(in_a_sentence(status, status.name))
        self.status = status
        """What became of it."""


def _plain(method: Callable[P, T]) -> Callable[P, T]:
    """A method whose errors show the line that calls it, and nothing of what lies below: whoever
    writes a job has to act on the message. A bug shows all."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except InvariantViolated:
            raise
        except OnyxError as error:
            raise error.with_traceback(None) from None

    return call


class Runnable(ABC):
    """A job as whoever uses it sees it, however it was put together."""

    __slots__ = ()

    @abstractmethod
    def manifest(self) -> dict[str, Any]:
        """The manifest as plain data."""

    @_plain
    def build(self) -> model.Job:
        """The job as a value, which `onyx.api` and `onyx.testing` take.

        Raises:
            ManifestError: it is not valid; with every problem, each with its path.
        """
        return parse_mapping(self.manifest())

    @_plain
    def validate(self) -> list[Problem]:
        """Check the job as `onyx validate` does, the options of its plugins and the functions that
        are on this machine included; warnings of what has no effect.

        Raises:
            ManifestError: it is not valid; with every problem.
        """
        job = _checked(self.build())
        import_from(Path())
        absent = missing(job, settings().modules)
        _refuse(wrong_here(job, settings(modules=modules_here(job)), absent))
        unlike = keys_in_vain(job, settings(), runs=False)
        return [*absent, *not_here(job, settings()), *unlike, *self._notices(job)]

    @_plain
    def plan(self) -> str:
        """How Spark would run the job, as `onyx plan` prints it.

        Raises:
            ManifestError: it is not valid, or Spark cannot run it; with every problem.
        """
        manifest = self.manifest()
        manifest["spec"]["engine"] = "spark"
        job = _checked(parse_mapping(manifest))
        return render(compile_job(job), job)

    @_plain
    def run(
        self,
        *,
        peers: int | None = None,
        processes: int | None = None,
        timeout_s: float | None = None,
        replace: bool = False,
    ) -> JobStatus:
        """Run the job on this machine, with a log and workers of its own, to its end.

        Args:
            peers: virtual peers in all; as many as the job needs, if None.
            processes: worker processes; one, or up to one a core where files are large, if None.
            timeout_s: after so many seconds the job is given up.
            replace: whether parts of other runs are removed from the folders of outputs first.

        Raises:
            ManifestError: the job is not valid; or a function, a package or a file is not there; or
                an output has parts of another run.
            JobFailed: it has failed, or somebody has killed it.
            OnyxError: it had not ended after `timeout_s`, and was killed.
        """
        _refuse_while_imported("run")
        job = _checked(self.build())
        import_from(Path())
        found = of_its_author(settings_for(job, None))
        _refuse(wrong_here(job, found))
        _refuse(why_not_here(job, found, replaces=replace))
        crew = crew_here(job, found, peers, processes)
        warn([*done_in_vain(job, found, crew.fewest), *self._notices(job)])
        with interrupted_by_sigterm():
            status, _ = run_here(job, found, crew, timeout_s=timeout_s)
        if status.state != "completed":
            raise JobFailed(status)
        return status

    @_plain
    def submit(self, settings: Settings | None = None) -> Submission:
        """Submit the job to a cluster, whose workers have the modules of its functions.

        Args:
            settings: how to reach it; by default by the variables `ONYX_*`.

        Raises:
            ManifestError: the job is not valid.
            JobRefused: the cluster does not take it.
        """
        _refuse_while_imported("submit")
        return submit_job(settings or from_environment(os.environ), _checked(self.build()))

    def _repr_svg_(self) -> str:
        """The graph of the job, which a notebook shows; it need not be complete."""
        return drawing(self.manifest())

    def _notices(self, job: model.Job) -> list[Problem]:
        declared, _ = parse_declared(self.manifest())
        return [*notices(job), *unused_declaration(declared)]


def _checked(job: model.Job) -> model.Job:
    _refuse([*wrong_options(job), *wrong_sql(job)])
    return job


def _refuse(problems: list[Problem] | tuple[Problem, ...]) -> None:
    if problems:
        raise ManifestError(list(problems))


def _refuse_while_imported(verb: str) -> None:
    """Workers import the modules of a job: one that runs jobs meanwhile would never end."""
    if is_importing():
        raise UserError(
            f"job.{verb}() is called while a job imports the module: put it below "
            'if __name__ == "__main__":'
        )
