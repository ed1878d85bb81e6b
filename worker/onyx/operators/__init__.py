"""Tasks that keep state between two batches: one room a kind, one row each in `table`."""
