"""Answers whether this worker can run a job (`check-job`), each check on a thread of its own.

A check imports the modules that a job names and calls the user's plugins. If that hangs, no task
and no other check waits for it, and the client that asked reports this worker as one without an
answer. Rejected: one thread for all checks. The first that hung was the last that was answered.

All is looked up that the start of a task looks up (`task/phases/start`), for every task, and
nothing is started; all that is wrong is said instead of the first thing. User's code runs as far as
it does when a peer joins a task that others work on: `calls` of lifecycles, and plugins are made
and closed again. A lookup that fails by a mistake of Onyx says so: the job may be right, and
whoever upgrades it must not look for what is wrong with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.errors import InvariantViolated, OnyxError, Problem, Unavailable, describe
from onyx.flow.leaves import resolve_params
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.operators.building import lookups_of
from onyx.program.failure import frames
from onyx.program.lifecycles import compile_lifecycles
from onyx.replica.commands.check_job import PROBLEM_CHARACTERS_MAX, PROBLEMS_MAX, VouchJob
from onyx.replica.effects import AnswerCheck
from onyx.settings import Settings
from onyx.task.plugin_context import context_in_process
from onyx.task.services import Services

CHECKS_MAX = 16
"""Checks that run at once, those that hang among them; more are not answered."""

CHECK = JobId("check")
"""In the place of the id of a job that has none yet."""

logger = logging.getLogger("onyx.peer")
Look = Callable[[Job], tuple[Problem, ...]]
_WRONG_OPTIONS: OnDemand[Look] = OnDemand("onyx.submission.job_checks:wrong_options")
_SAVEPOINT: OnDemand[Callable[[Job, Settings], list[str]]]
_SAVEPOINT = OnDemand("onyx.task.recovery.savepoint:savepoint_problems")
_WRONG_SQL: OnDemand[Look] = OnDemand("onyx.submission.job_checks:wrong_sql")


class JobChecker:
    """The checks of one incarnation."""

    def __init__(
        self, services: Services, group: GroupId, answer: Callable[[VouchJob], None]
    ) -> None:
        """`answer` is called on the thread of a check."""
        self._services = services
        self._group = group
        self._answer = answer
        self._places = threading.Semaphore(CHECKS_MAX)

    def ask(self, check: AnswerCheck) -> None:
        """Answer in a while."""
        if not self._places.acquire(blocking=False):
            logger.warning(
                "%d checks of jobs run already, so another is not answered. If plugins or modules "
                "of jobs hang, their checks end with this worker: start it again",
                CHECKS_MAX,
            )
            return
        name = f"onyx-checker-{self._group}"
        threading.Thread(target=self._work, args=(check,), name=name, daemon=True).start()

    def _work(self, check: AnswerCheck) -> None:
        try:
            found = self._problems(check)
        except Unavailable as error:
            logger.warning("a check of a job is not answered: %s", error)
            return
        except BaseException as error:
            found = [explained(error)]
        finally:
            self._places.release()
        shown = tuple(each[:PROBLEM_CHARACTERS_MAX] for each in found[:PROBLEMS_MAX])
        self._answer(VouchJob(id=check.check, group=self._group, problems=shown))

    def _problems(self, check: AnswerCheck) -> list[str]:
        chunk = self._services.log.get_chunk(check.digest)
        job = stored_job(chunk, f"of check {check.check}")
        wrong = [str(each) for each in (*_WRONG_OPTIONS.load()(job), *_WRONG_SQL.load()(job))]
        if job.upgrade is not None and job.upgrade.savepoint is not None:
            wrong += _SAVEPOINT.load()(job, self._services.settings)
        return wrong or problems(job, self._group, self._services)


# --- whether the tasks of a job could be started ------------------------------------------------


def problems(job: Job, group: GroupId, services: Services) -> list[str]:
    """Why the tasks could not be started, each once; empty if nothing is known against it."""
    found: dict[str, None] = {}
    for entry in job.catalog:
        for look_up in _lookups(job, entry, group, services):
            try:
                look_up()
            except BaseException as error:
                found.setdefault(f"task {entry.name}: {explained(error)}")
    return list(found)


def _lookups(
    job: Job, entry: CatalogEntry, group: GroupId, services: Services
) -> Iterator[Callable[[], Any]]:
    resolve, task = services.resolve, entry.name
    if entry.type == "table":
        yield lambda: _made(job, entry, group, services)
        return
    names = (entry.spark_stage, entry.assign_watermark_fn)
    yield from (partial(resolve, name) for name in names if name is not None)
    yield lambda: resolve_params({task: services.fn_params(task)}, entry)
    yield lambda: compile_lifecycles(job, task, resolve)
    yield from lookups_of(job, entry, resolve).values()
    if entry.plugin is not None:
        yield lambda: _made(job, entry, group, services)


def _made(job: Job, entry: CatalogEntry, group: GroupId, services: Services) -> None:
    """Make the plugin, which looks at its options, and close it."""
    assert entry.plugin is not None
    peer = PeerId(f"{group}-check")
    context = replace(
        context_in_process(services, job, entry, CHECK, peer, group),
        permitted=lambda: False,
        wanted=lambda: False,
    )
    build = services.build_output if entry.type == "output" else services.build_input
    build(entry.plugin, context).close()


def explained(error: BaseException) -> str:
    """Why a check has failed: what is wrong with the job, or that Onyx is wrong."""
    if not _is_bug(error):
        return describe(error)
    logger.error("a bug in Onyx: please report it", exc_info=error)
    return (
        f"a bug in Onyx, not in the job: {describe(error)}; please report it, with the traceback "
        "in the log of the worker"
    )


def _is_bug(error: BaseException) -> bool:
    """Whether nobody's code but that of Onyx has run where an error comes from."""
    if isinstance(error, OnyxError | OSError | TypeError):
        # A TypeError may be of a function of the user's that does not take what it is called with.
        return isinstance(error, InvariantViolated)
    return not frames(error)
