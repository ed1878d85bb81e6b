"""When what has failed is tried again, and when it has failed too often: a seal, a stage, a query.

Each has a number of attempts. What cannot be reached has a time too: a Spark server that is
replaced is away for a minute, and meanwhile each attempt fails within a second. So `Unavailable` is
final only when attempts and time are both used up. Time alone was rejected: a stage that takes an
hour and then runs out of memory would be tried once. What would fail again (`FailsAgain`, or a name
that does not exist) is final at once.
"""

from __future__ import annotations

import msgspec

from onyx.errors import FailsAgain, NameNotRegistered, Unavailable, describe

AWAY_S = 120.0
"""What cannot be reached is waited for so long, from the first failure on."""
AWAY_DELAYS_S = (1.0, 5.0, 15.0, 30.0)
"""Until the next attempt, after the first failures; the last one again and again."""
BLOCKED_RETRY_S = 5.0
"""What waits for room (`Blocked`) is tried again so often: it may have to run a whole stage."""


class Attempts(msgspec.Struct):
    """The attempts of one thing. One that succeeds has a new value afterwards."""

    failed: int = 0
    _first_s: float = 0.0

    def next_s(
        self, error: Exception, now_s: float, attempts_max: int, delay_s: float
    ) -> float | None:
        """Count a failure.

        Args:
            delay_s: before another attempt after any error but `Unavailable`.

        Returns:
            When the next attempt is to begin; None: it has failed too often.
        """
        if not self.failed:
            self._first_s = now_s
        self.failed += 1
        if isinstance(error, FailsAgain | NameNotRegistered):
            return None
        is_away = isinstance(error, Unavailable)
        if self.failed >= attempts_max and not (is_away and now_s < self._first_s + AWAY_S):
            return None
        return now_s + (self._away_s if is_away else delay_s)

    @property
    def _away_s(self) -> float:
        return AWAY_DELAYS_S[min(self.failed, len(AWAY_DELAYS_S)) - 1]

    def words(self, error: Exception) -> str:
        """How often it has failed, and with what: the end of a sentence."""
        times = f"{self.failed} times, last with" if self.failed > 1 else "with"
        return f"{times}: {describe(error)}"
