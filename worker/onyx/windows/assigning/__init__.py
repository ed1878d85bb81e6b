"""Which extents a segment belongs to: its place on the window's axis, and the extents of places."""
