"""Peer groups: a worker process as a member of the cluster.

Read `group` first (the pure state machine with its events and actions), then `incarnation` (the
thread that drives it). `membership` is what a worker starts: one incarnation after another. `work`
has the tasks of an incarnation, `watch` what it looks at beside events.
"""
