"""Requests of clients over gRPC: messages, the service, and calls that carry many."""
