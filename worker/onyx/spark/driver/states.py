"""The state of windows of a job on Spark, as its driver keeps it in order: where it is, and which
chunks nobody needs any more.

Processes of Spark write chunks (`spark_query.folding.share_state`), and only those count that a
committed document names. Removing needs no fence: the number of the batch is in the name, and a
chunk up to the number that is committed, which that commit does not name, is named by no later one.
"""

from __future__ import annotations

import logging
import os

from onyx.errors import OnyxError
from onyx.ids import JobId, PeerId
from onyx.log.interface import LogReader
from onyx.spark.driver.request import Held
from onyx.state.location import check_shared
from onyx.state.names import bucket_chunk, bucket_prefix
from onyx.storage.interface import BlobStore
from onyx.storage.opening import absolute

logger = logging.getLogger("onyx.task")

NO_BATCH = -1
"""In the place of the number of the last micro-batch: nothing is committed. What a job begins with
that upgrades another one is of batch 0."""


class States:
    """The states of one driver. Methods block."""

    def __init__(self, store: BlobStore, location: str, job: JobId, peer: PeerId) -> None:
        """`location`: URL or path of the store."""
        self._store, self._job, self._peer = store, job, peer
        self.location = absolute(location, os.getcwd())
        """The location as every process of Spark must see it."""

    def take_over(self, log: LogReader, held: Held, batch: int) -> None:
        """Make sure that this worker sees what others have written, and remove what they have left.

        Args:
            held: what is committed.
            batch: number of that micro-batch, or NO_BATCH: somebody else may just be writing what
                the job begins with.

        Raises:
            StateError: the worker has another state store than those before.
            Fenced, Unavailable, UserError: as everything of log and store.
        """
        check_shared(self._store, log, self._job, self._peer, self.location)
        named = set(_chunks(self._job, held))
        for each in self._store.list(bucket_prefix(self._job)):
            number = each.name.rpartition("/")[2].partition("-")[0]
            if number.isdecimal() and int(number) <= batch and each.name not in named:
                self._store.delete(each.name)

    def replaced(self, before: Held, after: Held) -> None:
        """Remove what the new commit does not need; what cannot be removed goes later."""
        needed = set(_chunks(self._job, after))
        try:
            for name in _chunks(self._job, before):
                if name not in needed:
                    self._store.delete(name)
        except OnyxError as error:
            logger.warning("job %s: state that nobody needs is left: %s", self._job, error)


def _chunks(job: JobId, held: Held) -> list[str]:
    return [bucket_chunk(job, state.task, name) for state in held.states for name, _ in state.files]
