"""What one task with state keeps on one peer, and how it becomes durable."""
