"""What somebody does to a job: an entry of the log with the name of who did it, and an audit line.

Whoever writes the entry logs the line, so there is one line for each act, wherever the process has
its log. The entries themselves are the record that no process can lose (`onyx events`,
[why](../../../docs/decisions/0125-who-did-it.md)).

    {"time": "2026-03-01T08:30:00.000+00:00", "by": "kubernetes:alice", "what": "kill-job",
     "job": "5e0c7a52-0000-4000-8000-000000000001", "tenancy": "shop.onyx", "position": 17}
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import socket
from datetime import UTC, datetime
from typing import TypeAlias

from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog
from onyx.replica.authors import AUDIT, COMMAND, UNKNOWN, author, bounded
from onyx.replica.commands import (
    DrainJob,
    Gc,
    KillJob,
    PauseJob,
    ResumeJob,
    SetOptions,
    SubmitJob,
    SuspendJob,
)

Act: TypeAlias = (
    SubmitJob | KillJob | SuspendJob | PauseJob | ResumeJob | DrainJob | SetOptions | Gc
)
ACTS = (SubmitJob, KillJob, SuspendJob, PauseJob, ResumeJob, DrainJob, SetOptions, Gc)

logger = logging.getLogger(AUDIT)


class Acts:
    """The acts of one client."""

    def __init__(self, log: ClientLog, tenancy: str = "", by: str = UNKNOWN) -> None:
        """`by`: who acts, if an act does not say."""
        self._log = log
        self._tenancy = tenancy
        self._by = by

    def append(self, command: Act, by: str = "") -> Position:
        """Write what somebody does, and log it. Raises as `ClientLog.append`; then nothing is
        logged, although the entry may have been written."""
        name = bounded(by or self._by)
        position = self._log.append(command, name)
        jobs = " ".join(jobs_of(command))
        audit(name, command.NAME, jobs, self._tenancy, position=position)
        return position


def audit(by: str, what: str, job: str, tenancy: str, **more: object) -> None:
    """Log what somebody has done to a job."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": time, "by": by, "what": what, "job": job, "tenancy": tenancy, **more}
    logger.info("%s", json.dumps(line, ensure_ascii=False))


def jobs_of(command: Act) -> tuple[JobId, ...]:
    """The jobs that an act is about: one, or all that are forgotten."""
    if isinstance(command, Gc):
        return command.jobs or ()
    return (command.id if isinstance(command, SubmitJob) else command.job,)


def user_of_process() -> str:
    """Who runs this process: the user of the operating system, and the machine. A variable such as
    `USER` is not asked, because it says what its user likes."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    return author(COMMAND, f"{name}@{socket.gethostname()}")
