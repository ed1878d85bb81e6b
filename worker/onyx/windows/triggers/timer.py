"""Trigger `timer`: fires every period, by shard, from the shard's first segment on (`timers`)."""

from __future__ import annotations

from onyx.windows.triggers.trigger import Trigger


class TimerTrigger(Trigger):
    """Only its period makes it fire, and the end of the job."""
