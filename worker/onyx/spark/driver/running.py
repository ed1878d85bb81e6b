"""A query that runs: what the task of a driver needs of it. `process` is the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from onyx.spark.driver.request import QueryBatch, QueryProgress, QueryReply


class RunningQuery(Protocol):
    """One run of a job on Spark. Nothing here blocks."""

    @property
    def progress(self) -> QueryProgress | None:
        """The newest report; None before the first one."""
        ...

    @property
    def batch(self) -> QueryBatch | None:
        """A micro-batch that is staged and not published; None if there is none."""
        ...

    def published(self, number: int) -> None:
        """The micro-batch of this number is published: the query goes on."""
        ...

    def reply(self) -> QueryReply | None:
        """How it ended; None while it runs, and while anything that it started may still write.

        Raises:
            UserError: this worker can run no Spark.
            Blocked: there is no room for its files.
            Unavailable: it ended without a reply.
        """
        ...

    def end(self, then: Callable[[], None] | None = None) -> None:
        """End it if it runs, and remove its scratch folder. Idempotent.

        Args:
            then: called on another thread, when nothing of it is left that could write.
        """
        ...
