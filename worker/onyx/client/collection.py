"""Collection of garbage in the log: `onyx gc`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from onyx.client.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log import job_documents
from onyx.log.interface import ClientLog, Origin
from onyx.replica import canonical
from onyx.replica.commands.gc import Gc
from onyx.submission import upgrades

FORGOTTEN_AT_ONCE = 500
"""Jobs named in one entry of the log, whose size is limited."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection of garbage came to."""

    jobs: tuple[JobId, ...]
    """Those that are forgotten."""
    position: Position
    """The log starts after this one."""


def collect(log: ClientLog, replicas: Replicas) -> Collected:
    """Forget the jobs that have ended, with all documents about them, and start the log from the
    current replica. Their ids are free again. An old job is kept until the job that upgrades it
    has carried over its state.

    Raises:
        Unavailable: ZooKeeper cannot be reached; call it again.
    """
    before = replicas.at()
    taken, needed = upgrades.progress(log, before)
    ended = tuple(job for job in (*before.completed_jobs, *before.killed_jobs) if job not in needed)
    for job in ended:
        log.delete_documents(job_documents.frontiers(job))
        log.delete_documents(job_documents.exception(job))
        log.delete_documents(job_documents.stalls(job))
        log.delete_documents(job_documents.place(job))
        log.delete_documents(job_documents.committed_query(job))
    position, caller = before.version, str(uuid.uuid4())
    for start in range(0, max(1, len(ended)), FORGOTTEN_AT_ONCE):
        some = ended[start : start + FORGOTTEN_AT_ONCE]
        done = tuple(job for job in taken if before.upgrades(job) in some)
        position = log.append(Gc(id=caller, jobs=some, carried_over=done))
    replica = replicas.at(position)
    log.collect(Origin(replica.version, canonical.encode(replica)))
    return Collected(ended, replica.version)
