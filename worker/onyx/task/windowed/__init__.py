"""Tasks with windows: their state, what triggers emit, and how both become durable."""
