"""A limit of so many a second: a bucket that tokens drip into. It holds one and those of a second.

Whoever takes says what time it is, so all that follows is the same for the same calls. Over any
time it gives at most the tokens of that time, those of one second, and one. The one makes room for
the part of a token that drips while the next is awaited: a bucket that is full when its first token
is whole would lose that part, and give less than its rate.
"""

from __future__ import annotations

BURST_S = 1.0
"""After a pause, so many seconds' worth may follow at once."""


class TokenBucket:
    """Not thread-safe. It is empty at first."""

    def __init__(self, per_second: float, now_s: float) -> None:
        """`now_s`: monotonic time now."""
        self.per_second = per_second
        self._tokens = 0.0
        self._counted_s = now_s

    def change(self, per_second: float, now_s: float) -> None:
        """Drip at another rate from now on; what has dripped so far stays, as far as it fits."""
        self.available(now_s)
        self.per_second = per_second
        self._tokens = min(self._tokens, self._capacity)

    def available(self, now_s: float) -> int:
        """Tokens that may be spent now."""
        earned = max(0.0, now_s - self._counted_s) * self.per_second
        self._tokens = min(self._tokens + earned, self._capacity)
        self._counted_s = max(self._counted_s, now_s)
        return int(self._tokens)

    def spend(self, count: int) -> None:
        """Take tokens of those that are available."""
        assert 0 <= count <= self._tokens, "spent without a look"
        self._tokens -= count

    @property
    def _capacity(self) -> float:
        return 1.0 + BURST_S * self.per_second
