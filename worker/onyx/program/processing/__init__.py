"""Tasks that are processors: what is called, in which order, and how their state is kept."""
