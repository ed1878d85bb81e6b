"""What all incarnations of a peer group share: the process that they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onyx.codes import CODE
from onyx.ids import PeerId
from onyx.peer.liveness import Liveness
from onyx.peer.tags import tags_of
from onyx.recorder import Recorder
from onyx.resolve import Resolver
from onyx.seams import Clock, Randomness
from onyx.settings import Settings
from onyx.telemetry.interface import GroupMetrics


@dataclass(frozen=True, slots=True)
class Context:
    """The process of a peer group."""

    settings: Settings
    resolver: Resolver
    metrics: GroupMetrics
    clock: Clock
    randomness: Randomness
    liveness: Liveness
    site: Mapping[str, Any]
    """Announced with every peer, beside the address of the transport."""
    replace_peer: Callable[[PeerId], None]
    """Gives up a virtual peer and offers a new one in its place."""
    recorder: Recorder | None = None
    """The flight recorder, if a supervisor reads it when this process dies."""

    @property
    def code(self) -> str:
        """Hash of the code that this process runs; empty if it has no modules."""
        return str(self.site.get(CODE, ""))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its peers offer."""
        return tags_of(self.settings)
