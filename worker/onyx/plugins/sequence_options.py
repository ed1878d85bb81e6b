"""Options of input `sequence`: apart from it, because it needs the codec and these do not."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from onyx.plugins.options import Options


class SequenceOptions(Options, frozen=True):
    """What to read."""

    segments: list[dict[str, Any]]
    """What to read, in order."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Segments are dealt to so many partitions in turn; each is read by one peer."""
