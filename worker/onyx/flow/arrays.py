"""The arrays that say something about each segment of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
"""Roots, ids or hashes."""
Indices = NDArray[np.intp]
"""Which segments, by their index in the batch."""
Mask = NDArray[np.bool_]
"""For each segment whether something holds for it."""
