"""Whether segments are accounted for: one policy, with two implementations."""
