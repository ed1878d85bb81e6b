"""Plugin `kafka`: messages of a topic as input and as output."""
