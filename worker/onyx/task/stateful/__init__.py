"""What a task with state does besides batches: it takes over, fires and ends."""
