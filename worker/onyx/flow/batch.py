"""The unit of work everywhere: a list of segments plus two columns of lineage.

Columns, not envelopes: an object around every segment would cost more than the hop itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Segment = dict[str, Any]
U64 = NDArray[np.uint64]
Indices = NDArray[np.intp]


@dataclass(slots=True)
class Batch:
    """`roots[i]` and `ids[i]` belong to `segments[i]`. Both are None under at-most-once."""

    segments: list[Segment]
    roots: U64 | None = None
    ids: U64 | None = None

    def __len__(self) -> int:
        return len(self.segments)

    def take(self, chosen: Indices) -> Batch:
        """A batch of the segments at these indices, with their lineage."""
        return Batch(
            [self.segments[index] for index in chosen.tolist()],
            None if self.roots is None else self.roots[chosen],
            None if self.ids is None else self.ids[chosen],
        )


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch of several: small batches waiting in a queue are joined before bookkeeping."""
    if len(batches) == 1:
        return batches[0]
    segments: list[Segment] = []
    for batch in batches:
        segments.extend(batch.segments)
    roots = [batch.roots for batch in batches if batch.roots is not None]
    ids = [batch.ids for batch in batches if batch.ids is not None]
    if not roots:
        return Batch(segments)
    return Batch(segments, np.concatenate(roots), np.concatenate(ids))
