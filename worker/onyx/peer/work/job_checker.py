"""Answers whether this worker can run a job (`check-job`), on a thread of its own.

A check imports the modules that a job names and calls the user's plugins. If that hangs, no task
waits for it, and the client that asked reports this worker as one without an answer.
"""

from __future__ import annotations

import contextlib
import logging
import queue
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

WAITING_MAX = 16
"""Checks that wait for their turn; more are not answered."""
logger = logging.getLogger("onyx.peer")


class JobChecker:
    """The checks of one incarnation."""

    def __init__(
        self, services: Services, group: GroupId, answer: Callable[[VouchJob], None]
    ) -> None:
        """`answer` is called on the checker's thread."""
        self._services = services
        self._group = group
        self._answer = answer
        self._waiting: queue.Queue[AnswerCheck | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None

    def ask(self, check: AnswerCheck) -> None:
        """Answer in a while; from one thread."""
        if self._thread is None:
            name = f"onyx-checker-{self._group}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(check)
        except queue.Full:
            logger.warning("%d checks of jobs wait already: another is not answered", WAITING_MAX)

    def stop(self) -> None:
        """Answer nothing any more; does not wait."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _work(self) -> None:
        while True:
            check = self._waiting.get()
            if check is None:
                return
            try:
                found = self._problems(check)
            except Unavailable as error:
                logger.warning("a check of a job is not answered: %s", error)
                continue
            except BaseException as error:
                found = [explained(error)]
            shown = tuple(each[:PROBLEM_CHARACTERS_MAX] for each in found[:PROBLEMS_MAX])
            self._answer(VouchJob(id=check.check, group=self._group, problems=shown))

    def _problems(self, check: AnswerCheck) -> list[str]:
        chunk = self._services.log.get_chunk(check.digest)
        job = stored_job(chunk, f"of check {check.check}")
        wrong = [str(each) for each in (*wrong_options(job), *wrong_sql(job))]
        return wrong or problems(job, self._group, self._services)
