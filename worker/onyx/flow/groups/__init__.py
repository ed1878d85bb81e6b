"""Group keys: how they are read from segments, which are one group, and the peer that has it."""
