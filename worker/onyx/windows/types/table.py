"""Which class a window type is, by its name in the manifest.

What else is known of one stands in its row of `model.kinds`, which has the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.windows.types.extents import Extents
from onyx.windows.types.numbered import FixedExtents, GlobalExtents, SlidingExtents
from onyx.windows.types.session_arrays import SessionsInArrays

TYPES: Mapping[str, type[Extents[Any]]] = {
    "fixed": FixedExtents,
    "global": GlobalExtents,
    "session": SessionsInArrays,
    "sliding": SlidingExtents,
}
