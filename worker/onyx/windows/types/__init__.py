"""Window types: what is held, changed and stored for each extent of a window."""
