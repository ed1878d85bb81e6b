"""How much of the past is kept: what is collected, by whom, when, and where it may be archived."""
