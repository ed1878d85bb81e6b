"""Outputs: what is durable is acked; exactly-once outputs commit it first."""
