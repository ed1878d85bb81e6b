"""How long a segment that failed rests before its input reads it again.

The delay doubles with each retry, so that a service that is down for a minute is not asked a
thousand times, and one that is down for an hour is asked once a minute.
"""

from __future__ import annotations

from typing import NamedTuple

_DOUBLINGS_MAX = 64
"""2.0 to a higher power would not be a float for ever."""


class RetryDelay(NamedTuple):
    """Limits of the delay; the settings `retry_delay_s` and `retry_delay_max_s`."""

    first_s: float = 0.1
    max_s: float = 60.0

    def delay_s(self, retries: int) -> float:
        """Seconds before the next retry, after `retries` earlier ones."""
        return min(self.first_s * 2.0 ** min(retries, _DOUBLINGS_MAX), self.max_s)


DEFAULT = RetryDelay()
