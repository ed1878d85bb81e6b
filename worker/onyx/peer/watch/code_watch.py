"""Notes with which code a job began, and warns in the log when this worker runs it with other code.

One small document for each job, beside the log: the hash of the code by the tags of the worker that
got the job first. It is never changed afterwards and goes when the job is collected. In the replica
the hash would need a command of its own, and nobody decides anything by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from onyx.errors import Fenced, OnyxError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import GroupLog, LogReader
from onyx.peer.life import Pending, RunAside
from onyx.replica.state import Replica
from onyx.reports.codes import began_with, pool

logger = logging.getLogger("onyx.peer")
POOLS_MAX = 64
"""Pools of workers that are noted of one job."""
_WRITES_MAX = 5


class CodeWatch:
    """The code watch of one incarnation. Used by the group's thread.

    Args:
        code: hash of this worker's code; empty: it has no modules, and nothing is noted.
        tags: of this worker's peers.
        background: runs what reads and writes.
    """

    def __init__(self, log: GroupLog, code: str, tags: Iterable[str], background: RunAside) -> None:
        self._log = log
        self._code = code
        self._pool = pool(tags)
        self._background = background
        self._known: frozenset[JobId] = frozenset()
        """Jobs of this group that have been compared."""
        self._seen: tuple[object, object] = None, None
        self._comparing: Pending | None = None

    def look(self, replica: Replica, permitted: bool) -> None:
        """Note or compare the code of jobs that are new here."""
        busy = self._comparing is not None and not self._comparing.done()
        seen = replica.records, replica.groups_index
        if not self._code or not permitted or busy:
            return
        if all(new is old for new, old in zip(seen, self._seen, strict=True)):
            return
        self._known &= frozenset(replica.jobs)
        new = sorted(frozenset(self._jobs(replica)) - self._known)
        self._seen = seen
        if new:
            self._comparing = self._background(lambda: self._compare(new))

    def _jobs(self, replica: Replica) -> Iterable[JobId]:
        mine = frozenset(replica.groups_index.get(self._log.group, ()))
        for job in replica.jobs:
            if any(not mine.isdisjoint(each) for each in replica.run(job).allocation.values()):
                yield job

    def _compare(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            try:
                began = note(self._log, job, self._pool, self._code)
            except OnyxError as error:
                if not isinstance(error, Fenced):
                    logger.info("with which code job %s began is not known: %s", job, error)
                self._seen = None, None  # again at the next look
                return
            self._known |= {job}
            if began != self._code:
                logger.warning(
                    "job %s began with code %s, and this worker runs it with %s: results before "
                    "and after may differ; restart the worker with the old code, or submit the "
                    "job as an upgrade",
                    job,
                    began,
                    self._code,
                )


def note(log: LogReader, job: JobId, name: str, code: str) -> str:
    """With which code the job began in a pool; this one, if nobody has noted any.

    Raises:
        Unavailable: the log cannot be reached.
        Fenced: this incarnation is dead.
    """
    path = documents.code(job)
    for _ in range(_WRITES_MAX):
        document = log.get_document(path)
        began = began_with(None if document is None else document.data)
        if name in began or len(began) >= POOLS_MAX:
            return began.get(name, code)
        noted = msgspec.json.encode({**began, name: code})
        if (
            log.put_document(path, noted, None if document is None else document.version)
            is not None
        ):
            break
    return code
