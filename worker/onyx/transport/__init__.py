"""Streams between peer groups: gRPC, bounded everywhere, short-circuited inside one process."""
