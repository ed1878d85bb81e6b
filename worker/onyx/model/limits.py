"""Limits of keys that entries of the log hold too. A module of its own: the log needs no model."""

from __future__ import annotations

BATCH_SEGMENTS_MAX = 100_000
PENDING_MAX = 10_000_000
SEGMENTS_PER_SECOND_MAX = 1_000_000_000
STATE_TTL_MS_MAX = 315_360_000_000
"""Ten years."""
TIMEOUT_MS_MAX = 86_400_000
NOTHING_DECLARED = "defaults"
"""The fingerprint of a manifest that gives none of the keys that may change while a job runs."""
FIRST_FAILURES_MAX = 1_000_000_000
LAPS_MAX = 1_000_000
"""Times that a segment may go round a loop."""
