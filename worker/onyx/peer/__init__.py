"""Peer groups: a worker process as a member of the cluster.

Read `group` (the pure state machine) with its `events` and `actions` first, then `incarnation` (the
thread that drives it). `peer_group` is what a worker starts: one incarnation after another.
"""
