"""Answers whether this worker can run a job (`check-job`), each check on a thread of its own.

A check imports the modules that a job names and calls the user's plugins. If that hangs, no task
and no other check waits for it, and the client that asked reports this worker as one without an
answer. Rejected: one thread for all checks. The first that hung was the last that was answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from onyx.errors import Unavailable
from onyx.ids import GroupId
from onyx.model.parsing.mapping import stored_job
from onyx.replica.commands.check_job import PROBLEM_CHARACTERS_MAX, PROBLEMS_MAX, VouchJob
from onyx.replica.effects import AnswerCheck
from onyx.submission.plugin_options import wrong_options
from onyx.submission.sql_checks import wrong_sql
from onyx.task.services import Services
from onyx.task.start_check import explained, problems

CHECKS_MAX = 16
"""Checks that run at once, those that hang among them; more are not answered."""
logger = logging.getLogger("onyx.peer")


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
        wrong = [str(each) for each in (*wrong_options(job), *wrong_sql(job))]
        return wrong or problems(job, self._group, self._services)
