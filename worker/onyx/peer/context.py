"""What all incarnations of a peer group share: the process that they run in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.base.seams import Clock, Randomness, SystemClock, system_randomness
from onyx.peer.liveness import Liveness
from onyx.peer.router.router import CurrentRouter
from onyx.reports.codes import CODE
from onyx.settings import Settings
from onyx.spark.session.masters import tags_of
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics
from onyx.telemetry.recorder import NoRecorder, Recorder, Recording
from onyx.user_code.resolve import Resolver


class ProcessContext(msgspec.Struct, frozen=True):
    """The process of a peer group."""

    settings: Settings
    resolver: Resolver
    metrics: GroupMetrics
    clock: Clock
    randomness: Randomness
    liveness: Liveness
    site: Mapping[str, Any]
    """Announced with every peer, beside the address of the transport."""
    recorder: Recorder | None = None
    """The flight recorder, if a supervisor reads it when this process dies."""
    current_router: CurrentRouter = msgspec.field(default_factory=CurrentRouter)
    """Where requests of clients come in."""

    @property
    def recording(self) -> Recording:
        """Where tasks note what they work on, in case the process dies."""
        return NoRecorder() if self.recorder is None else self.recorder

    @property
    def code(self) -> str:
        """Hash of the code that this process runs; empty if it has no modules."""
        return str(self.site.get(CODE, ""))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its peers offer."""
        return tags_of(self.settings)


def new_context(
    settings: Settings,
    resolver: Resolver,
    metrics: GroupMetrics = NULL_GROUP,
    site: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    recorder: Recorder | None = None,
) -> ProcessContext:
    """The process that these belong to.

    Args:
        site: announced with every peer beside the address (the metrics endpoint).
        clock: of this process; the system's, if None.
        randomness: of this process; seeded by the system, if None.
        recorder: the flight recorder of this process, if a supervisor reads it.
    """
    clock = clock or SystemClock()
    return ProcessContext(
        settings,
        resolver,
        metrics,
        clock,
        randomness or system_randomness(),
        Liveness(clock, settings.telemetry.stalled_after_s),
        dict(site or {}),
        recorder,
    )
