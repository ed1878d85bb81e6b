"""Options of outputs that write parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options, wrong_location
from onyx.plugins.roll_limits import ROLL_LIMITS


class PartOptions(Options, frozen=True):
    """Where parts are written and when a new one begins."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """Directory or `s3://bucket/prefix`. A missing directory is created; existing files stay."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.size_bytes
    """Start a new part at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = ROLL_LIMITS.segments
    """Start a new part after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = ROLL_LIMITS.age_s
    """Start a new part after this time; until then its segments are not acked."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_location("path", self.path)
