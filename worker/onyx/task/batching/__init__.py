"""How large the batches of a task are, and what they take."""
