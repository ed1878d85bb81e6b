"""Which extents a segment belongs to: its coordinate on the window's axis, and the extents of
coordinates."""
