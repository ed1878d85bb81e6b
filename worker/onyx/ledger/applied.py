"""Which segments have been applied to the state of a task: what exactly-once rests on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from onyx.ledger.lineage import U64


class Applied:
    """Ids that have been applied, each with its root. Not thread-safe."""

    def __init__(self, roots: U64 | None = None, ids: U64 | None = None) -> None:
        """With what was recovered; attempts do not count."""
        raise NotImplementedError

    def known(self, roots: U64, ids: U64) -> NDArray[np.bool_]:
        """For each segment of a batch whether it has been applied before."""
        raise NotImplementedError

    def add(self, roots: U64, ids: U64) -> None:
        """Segments that are applied now. The columns are kept and must not change afterwards."""
        raise NotImplementedError

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Drop what lies below the frontier (a position) of its partition: it never comes again."""
        raise NotImplementedError

    def rewired(self) -> None:
        """The job has a new allocation version, so first attempts may come a second time."""
        raise NotImplementedError

    def columns(self) -> tuple[U64, U64]:
        """Roots (attempt bits cleared) and ids of all that is known, for a snapshot."""
        raise NotImplementedError
