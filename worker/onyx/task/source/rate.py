"""How fast a peer of an input may read (`segmentsPerSecondMax`): its part of the task's limit.

The limit is dealt to partitions that have not ended, and each peer takes its turns for those that
it owns. So the parts add up to the limit, without a word between peers, and what a partition does
not use goes to others of its peer. When partitions move, both owners count them for a moment, but
the new one begins with an empty bucket.

What an earlier owner may have sent is read again, and no limit holds for it. Therefore little is
reserved ahead under a limit: that much may be new, and read at once after a crash.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container

from onyx.base.seams import Clock
from onyx.ledger.token_bucket import TokenBucket

RESERVED_S = 2.0
"""Reserved ahead under a limit: as much as may be read between two saves by time."""
GRAIN_S = 0.02
"""A batch waits for the tokens of this time: batches of a few segments cost more than they hold."""


class ReadLimit:
    """The limit of one peer of an input; without one, everything may be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bucket: TokenBucket | None = None

    @property
    def holds(self) -> bool:
        """Whether there is a limit."""
        return self._bucket is not None

    def change(self, per_second: float | None) -> None:
        """Follow another limit, or another part of it; None for no limit."""
        now_s = self._clock.monotonic_s()
        if per_second is None:
            self._bucket = None
        elif self._bucket is None:
            self._bucket = TokenBucket(per_second, now_s)
        elif per_second != self._bucket.per_second:
            self._bucket.change(per_second, now_s)

    def allowed(self, wanted: int, again: int) -> int:
        """How many of the next `wanted` positions may be read now, if the first `again` of them may
        have been sent before."""
        if self._bucket is None or wanted <= again:
            return wanted
        tokens = self._bucket.available(self._clock.monotonic_s())
        if tokens < min(wanted - again, self._bucket.per_second * GRAIN_S):
            return again
        return min(wanted, again + tokens)

    def spend(self, count: int, again: int) -> None:
        """So many were read."""
        if self._bucket is not None:
            self._bucket.spend(max(0, count - again))

    def reserve_max(self, partitions: int) -> int | None:
        """Most positions to reserve ahead in each of so many partitions; None for no limit."""
        if self._bucket is None:
            return None
        return max(1, math.ceil(self._bucket.per_second * RESERVED_S / max(1, partitions)))


def part_of(limit: int, own: Collection[int], all_of_task: range, ended: Container[int]) -> float:
    """The part of a task's limit that a peer has.

    Args:
        own: numbers of the partitions that it owns.
        all_of_task: numbers of all partitions of the task.
        ended: numbers of those that are exhausted.
    """
    everybodys = sum(number not in ended for number in all_of_task)
    mine = sum(number not in ended for number in own)
    return limit * mine / everybodys if everybodys else float(limit)
