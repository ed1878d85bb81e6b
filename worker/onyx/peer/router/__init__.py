"""Requests of clients: to which input, and to which worker they go."""
