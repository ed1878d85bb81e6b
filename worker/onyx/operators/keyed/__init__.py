"""Functions with state by key: what is called, in which order, and what it may leave behind."""
