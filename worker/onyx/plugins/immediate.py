"""Base of outputs that are done with segments as soon as `write` returns."""

from __future__ import annotations

from collections.abc import Sequence

from onyx.flow.batch import Segment
from onyx.ids import GroupId


class ImmediateOutput:
    """Counts what was written; a subclass says in `deliver` what is done with it."""

    cooperative = True

    def __init__(self) -> None:
        self._durable = 0

    def deliver(self, segments: list[Segment]) -> None:
        raise NotImplementedError

    def write(self, segments: list[Segment]) -> None:
        self.deliver(segments)
        self._durable += len(segments)

    def durable(self) -> int:
        return self._durable

    def flush(self) -> None:
        pass

    def tick(self) -> None:
        pass

    def fence(self, live: Sequence[GroupId]) -> None:
        pass

    def seal(self) -> None:
        pass

    def close(self) -> None:
        pass
