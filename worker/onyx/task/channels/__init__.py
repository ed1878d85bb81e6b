"""Connections of one peer in one allocation version: wiring, outbox, and control items."""
