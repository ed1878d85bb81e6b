"""Bringing a job to rest before one with `engine: spark` takes its place.

Whoever pauses a job lets it go on if nothing came of it. A job that stays paused was paused by a
process that was killed: `onyx jobs` says so, and how it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onyx.errors import Unavailable
from onyx.history.replicas import Replicas
from onyx.ids import JobId
from onyx.log.acts import Acts
from onyx.replica.commands import PauseJob, ResumeJob
from onyx.replica.jobs import restless
from onyx.replica.scheduling.explain import TASKS_NAMED_MAX
from onyx.replica.state import Replica

REST_TIMEOUT_S = 120.0
"""For what is in flight to arrive: a file is published at once, a transaction soon."""


@contextmanager
def at_rest(replicas: Replicas, acts: Acts, job: JobId) -> Iterator[None]:
    """Bring a job to rest, for as long as the body runs; if that raises, the job goes on.

    Raises:
        Unavailable: it does not come to rest in time, or somebody has resumed it.
    """
    acts.append(PauseJob(job=job))
    try:
        _await_rest(replicas, job)
        yield
    except BaseException:
        acts.append(ResumeJob(job=job))
        raise


def _await_rest(replicas: Replicas, job: JobId) -> None:
    """Also until it has ended."""
    newest, over = replicas.at(None), threading.Event()

    def look(_: object, replica: Replica) -> None:
        nonlocal newest
        newest, run = replica, replica.run(job)
        if run.suspended or not run.is_paused or not restless(replica, job):
            over.set()

    look(None, newest)
    with replicas.follow(look, newest):
        if not over.wait(REST_TIMEOUT_S):
            left = ", ".join(restless(newest, job)[:TASKS_NAMED_MAX])
            raise Unavailable(
                f"job {job} does not come to rest within {REST_TIMEOUT_S:g} s: segments of {left} "
                "are in flight; it goes on, and nothing was changed"
            )
    if job in newest.jobs and restless(newest, job):
        raise Unavailable(f"somebody has resumed or suspended job {job}, which did not rest yet")
