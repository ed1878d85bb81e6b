"""Waits for a job to end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from onyx.base.path_names import path_name
from onyx.client.manifests import digest_of
from onyx.errors import UserError
from onyx.history.replicas import Replicas
from onyx.ids import JobId
from onyx.log.interface import Origin
from onyx.replica.command import Entry
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica

FORGOTTEN = "its id was let go by `onyx gc`, or by more than ONYX_HISTORY_REMEMBERED_MAX jobs since"


def wait(
    replicas: Replicas,
    job: JobId,
    timeout_s: float | None,
    progress: Callable[[Replica], None],
) -> bool:
    """Whether the job has completed, once it has ended. See `JobReader.wait`."""
    replica = replicas.at()
    completed = has_completed(replica, JobId(path_name(job, "the id of a job")))
    if completed is not None:
        return completed
    digest_of(replica, job)
    ended = threading.Event()
    answer: list[bool | None] = []

    def look(_: Entry | Origin, replica: Replica) -> None:
        progress(replica)
        if job not in replica.jobs:
            answer.append(has_completed(replica, job))
            ended.set()

    progress(replica)
    with replicas.follow(look, replica, ended.set):
        if not ended.wait(timeout_s):
            raise TimeoutError(f"job {job} has not ended after {timeout_s} s")
    if answer[0] is None:
        raise UserError(f"job {job} has ended, and nobody knows any more how: {FORGOTTEN}")
    return answer[0]
