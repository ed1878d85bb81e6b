"""The log in ZooKeeper, over kazoo: one session, and what is read and written through it."""
