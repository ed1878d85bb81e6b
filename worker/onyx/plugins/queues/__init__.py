"""Queues as inputs: streams of Redis and of NATS JetStream."""
