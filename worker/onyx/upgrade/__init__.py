"""A new version of a job in the place of an old one: what of its state is carried over. Pure."""
