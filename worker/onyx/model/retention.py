"""How long what is processed stays in the journal of an input, for other jobs and later ones."""

from __future__ import annotations

import msgspec

DAY_MS = 86_400_000


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
