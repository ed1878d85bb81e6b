"""Peer groups: the state machine of a member, its incarnations, and the executor of its tasks."""
