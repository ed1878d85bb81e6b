"""State by key group, of whatever kind: where values lie, records of their changes, and which of
them a question gets. Pure."""
