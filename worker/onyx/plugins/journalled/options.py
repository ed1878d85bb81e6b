"""Options that all inputs with a journal share whose segments are in it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from onyx.model.retention import JOURNAL_BYTES_MAX, Retention
from onyx.plugins.options import Options


class JournalOptions(Options, frozen=True):
    """How a journal is kept."""

    journal_bytes_max: Annotated[int, msgspec.Meta(ge=1_048_576)] = JOURNAL_BYTES_MAX
    """Bytes of the journal of a partition that are not processed; beyond it, nothing is taken until
    there is room. Requests that are held by writes may be as many besides."""
    keep_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] | None = None
    """Keep what is processed for so many days, so that other jobs can follow the journal and later
    ones begin in it. Without it and `keepBytes` nothing is kept."""
    keep_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Keep so many bytes of what is processed in each partition; with `keepDays` what is older goes
    even so."""

    @property
    def retention(self) -> Retention:
        """How much is kept of what is processed."""
        return Retention(self.keep_days, self.keep_bytes)
