"""Which class a window type is, by its name in the manifest.

The names are those of `type` in `model/job/windows`, which validation and the CRD use; a test
compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.windows.types.extents import Extents
from onyx.windows.types.fixed_and_sliding import FixedExtents, SlidingExtents
from onyx.windows.types.global_ import GlobalExtents
from onyx.windows.types.session import SessionExtents

TYPES: Mapping[str, type[Extents[Any]]] = {
    "fixed": FixedExtents,
    "global": GlobalExtents,
    "session": SessionExtents,
    "sliding": SlidingExtents,
}
