"""Positions as ranges, and columns in order."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import is_increasing
from onyx.ledger.lineage import Indices

N = TypeVar("N", bound="np.integer[Any]")

GAP_POSITIONS_MAX = 1024
"""Due positions nearer than this are read again in one range: seeking costs more than skipping."""


class Range(NamedTuple):
    """Positions `first` to before `end`."""

    first: int
    end: int


def increasing(numbers: NDArray[N]) -> NDArray[N]:
    """The numbers in order, each once: as they mostly come."""
    return numbers if is_increasing(numbers) else np.unique(numbers)


def ranges_of(positions: Indices, gap: int = GAP_POSITIONS_MAX) -> list[Range]:
    """Increasing positions as ranges, near ones together."""
    if len(positions) == 0:
        return []
    breaks = np.flatnonzero(np.diff(positions) > gap) + 1
    firsts = positions[np.concatenate(([0], breaks))].tolist()
    lasts = positions[np.concatenate((breaks - 1, [len(positions) - 1]))].tolist()
    return [Range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]
