"""Queries over inputs without end, and a worker that commits their micro-batches or dies.

Without a JVM (`support.spark_query`): the source, the stages and the hand-over are the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.support.spark.query import Frames, publish_batch, request_of, run_query

from onyx.errors import Unavailable
from onyx.model.job import Job
from onyx.spark.driver.request import Held, QueryBatch, QueryReply


class Worker:
    """What the worker's side does with micro-batches, and what it remembers."""

    def __init__(self, job: Job, folder: Path, modules: tuple[str, ...], **more: Any) -> None:
        self.job = job
        self.request = request_of(job, folder, modules, **more)
        self.batches: list[QueryBatch] = []
        """That are committed."""
        self.dies: Callable[[QueryBatch], str] = lambda batch: ""
        """Says `before the commit` or `behind it` of a micro-batch."""
        self.then: Callable[[QueryBatch], object] = lambda batch: None
        """Called when a micro-batch is published."""

    def publish(self, batch: QueryBatch) -> None:
        when = self.dies(batch)
        if when == "before the commit":
            raise Unavailable("died")
        self.batches.append(batch)
        publish_batch(self.request, batch)
        self.then(batch)
        if when == "behind it":
            raise Unavailable("died")

    def run_whoever_dies(self, before: int, behind: int) -> None:
        """Run to the end, and die on the way: before the commit of one micro-batch, and behind that
        of a later one."""
        left = {before: "before the commit", behind: "behind it"}
        self.dies = lambda batch: left.pop(batch.number, "")
        failures = [self.run().failure for _ in range(3)]
        assert [each is None for each in failures] == [False, False, True], failures

    def run(self, spark: Any = None, buckets: int = 3, draining: bool = False) -> QueryReply:
        """A new query, behind the last commit."""
        last = self.batches[-1] if self.batches else None
        self.request = msgspec.structs.replace(
            self.request,
            attempt=f"{self.request.attempt}x",
            batches=last.number if last else 0,
            positions=last.positions if last else (),
            held=last.held if last else Held(),
            draining=draining,
        )
        return run_query(self.request, spark or Frames(buckets), self.publish)


def written(folder: Path) -> list[dict[str, Any]]:
    """All rows of the output at `out`, in no order."""
    texts = [path.read_text() for path in (folder / "out").glob("part-*")]
    return [json.loads(line) for text in texts for line in text.splitlines()]
