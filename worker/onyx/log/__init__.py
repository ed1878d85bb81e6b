"""The log: a totally ordered sequence of commands in ZooKeeper, pulses, origin, chunks."""
