"""What an old job on Spark has left: micro-batches that are not published, and state by bucket.

Its document is closed (`spark.driver.committed.close`). All that was read is applied and staged, so
there are no ids, and no emissions that somebody waits for.
"""

from __future__ import annotations

from onyx.spark.driver.committed import Committed
from onyx.state.buckets import read_buckets
from onyx.state.chunks import Watermark
from onyx.state.gathering import Gathered
from onyx.state.names import TaskFolder
from onyx.storage.interface import BlobStore
from onyx.task.parts.assignment import Assignment
from onyx.task.query_outputs import outputs_of
from onyx.task.recovery.old_job import Planned


def publish_committed(assignment: Assignment, old: Planned, query: Committed) -> None:
    """Publish what the last micro-batch has staged: its worker may have died before. Blocks, and
    may be called by several at once.

    Raises:
        Unavailable: an output cannot be reached now; call it again.
    """
    outputs_of(assignment, old.id, old.job).publish(query.attempt, query.outputs, over=False)


def state_of_query(
    store: BlobStore, old: Planned, query: Committed, task: str, shards: frozenset[int], split: bool
) -> Gathered:
    """What the buckets of a task hold of these shards.

    Args:
        split: whether each bucket has some key groups; else one has all, whichever.

    Raises:
        StateError: a chunk is gone or damaged.
        Unavailable, UserError: as everything of the store.
    """
    found, folder = Gathered.of(shards), TaskFolder(old.id, task)
    marks: list[Watermark | None] = []
    for each in query.held.of(task, shards if split else None):
        own = [n for n in shards if not split or n % query.held.buckets == each.bucket]
        names = [name for name, _ in each.files]
        for number, state in read_buckets(store, folder, names, own).items():
            found.shards[number].extend(state)
        for number in own:
            found.shards[number].closed = each.over
        marks.append(each.mark)
    known = [mark for mark in marks if mark is not None]
    found.watermark = min(known) if known and len(known) == len(marks) else None
    for state in found.shards.values():
        state.closed = state.closed or query.over
    return found
