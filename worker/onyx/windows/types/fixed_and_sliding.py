"""Window types `fixed` and `sliding`: extents of one width, which begin every `slide`
coordinates."""

from __future__ import annotations

from onyx.windows.assigning.tiling import Tiling
from onyx.windows.types.extents import OnPeer
from onyx.windows.types.numbered import NumberedExtents
from onyx.windows.units import standard


class SlidingExtents(NumberedExtents):
    """Extents may overlap: a segment is in each that has its coordinate."""

    def __init__(self, on_peer: OnPeer) -> None:
        window = on_peer.compiled.window
        assert window.range is not None, "checked when the job is parsed"
        width = standard(window.range)
        slide = width if window.slide is None else standard(window.slide)
        super().__init__(on_peer, Tiling(window.min_value, width, slide))


class FixedExtents(SlidingExtents):
    """Extents lie side by side."""
