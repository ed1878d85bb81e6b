"""A task that joins two streams."""
