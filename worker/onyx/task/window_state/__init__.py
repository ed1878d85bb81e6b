"""The state of a windowed task on one peer: what is durable, what is emitted, what waits for it."""
