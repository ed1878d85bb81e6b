"""Windows: segments go into extents, and triggers say when these are emitted."""
