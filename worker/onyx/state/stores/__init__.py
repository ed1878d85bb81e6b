"""Where chunks are kept: a shared directory, an object store, or memory."""
