"""What stays in the journal of an input: how much of what is not processed, and how long what is
processed stays for other jobs and later ones."""

from __future__ import annotations

import msgspec

DAY_MS = 86_400_000
JOURNAL_BYTES_MAX = 1_073_741_824
"""Bytes of a partition that are not processed, where options give no bound (`journalBytesMax`)."""


class Retention(msgspec.Struct, frozen=True):
    """How much is kept of what is processed: nothing if nothing is said."""

    days: float | None = None
    size_bytes: int | None = None

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        limits = [each for each in (self.days, self.size_bytes) if each is not None]
        return bool(limits) and 0 not in limits


NOTHING = Retention()
