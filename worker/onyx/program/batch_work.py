"""What is known of a batch on its way through a task."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from msgspec import field

from onyx.flow.batch import Batch, Segment, Segments, as_given, joined
from onyx.flow.leaves import Leaves
from onyx.flow.routed import Routed
from onyx.functions.returning import Returned
from onyx.keystate.coded import Keyed


class BatchWork(msgspec.Struct):
    """A batch, and what each step of the program has added to it."""

    batch: Batch | None = None
    leaves: Leaves | None = None
    """What the function has made of the batch."""
    groups: Keyed | None = None
    """Group keys of the segments of the batch, where it has a state."""
    seen: Any = None
    """What an operator has seen of the leaves, for itself."""
    routed: Routed | None = None
    """Where everything goes, and what has failed."""
    made: list[tuple[int, Segments]] = field(default_factory=list)
    """What an operator has made in place of leaves, with its key groups: sent when what it has
    changed is durable."""
    made_of: dict[int, list[int]] = field(default_factory=dict)
    """By shard, the index of the segment of the batch that each of them was made of, where that is
    of use to somebody."""
    left: Batch | None = None
    """What an operator with an inbox has left of the batch; it is no part of the batch any more."""
    returned: list[Returned] = field(default_factory=list)
    """What the function gives back for segments of the batch."""
    own: bool = False
    """In a stage of Spark, whether the batch is of its result, and not of what came to it."""

    @property
    def results(self) -> int:
        """How many segments the function has made."""
        leaves = 0 if self.leaves is None else len(self.leaves)
        return leaves + sum(len(segments) for _, segments in self.made)

    @property
    def made_as_given(self) -> pa.RecordBatch | list[Segment]:
        """What has been made, as hooks have it."""
        made = [segments for _, segments in self.made]
        return as_given(joined(made)) if made else []
