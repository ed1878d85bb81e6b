"""Segments that a function or a condition asks to be tried again, within the query.

They are tried in the process that has them, because nothing of them has gone anywhere. Attempts are
counted in roots, as on peers, though nothing here is acked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from onyx.base.runs import array_of
from onyx.codec.segments import decode, encode
from onyx.flow.batch import Batch, as_shown, copies_of
from onyx.flow.routed import Routed
from onyx.ledger.lineage import FINAL, tries_of
from onyx.ledger.retry_delay import DEFAULT, RetryDelay

ATTEMPT = 1 << 40
"""One attempt, in a root."""
Sleep = Callable[[float], None]


class Retrying:
    """Tries segments again, after a rest."""

    def __init__(self, sleep: Sleep = time.sleep, delay: RetryDelay = DEFAULT) -> None:
        self._sleep = sleep
        self._delay = delay

    def first(self, batch: Batch) -> None:
        """A batch is tried for the first time."""
        batch.roots = np.zeros(len(batch), np.uint64)

    def unchanged(self, batch: Batch, deeply: bool) -> Callable[[], Batch]:
        """What gives the batch as it is now, whatever functions do with its segments.

        Args:
            deeply: also with what is in lists and dicts of a segment. Any function may ask for
                retries, and hardly one does: it pays for copies of dicts, and for no more.
        """
        if not deeply or not isinstance(batch.segments, list):
            segments = copies_of(batch.segments)
            return lambda: replace(batch, segments=segments, keys=None)
        data = encode(as_shown(batch.segments))
        return lambda: replace(batch, segments=decode(data), keys=None)

    def again(self, batch: Batch, routed: Routed) -> Batch:
        """The segments to be tried again, after a rest, each with its next attempt."""
        again = batch.take(np.array(routed.retries, np.intp))
        assert again.roots is not None
        roots = array_of(again.roots)
        tried = [tries_of(int(root)) for root in roots]
        next_roots = roots + np.uint64(ATTEMPT)
        for index, (count, most) in enumerate(zip(tried, routed.retries_max, strict=True)):
            if count >= most:
                next_roots[index] |= np.uint64(FINAL << 40)
        again.roots = next_roots
        self._sleep(max(self._delay.delay_s(count - 1) for count in tried))
        return again
