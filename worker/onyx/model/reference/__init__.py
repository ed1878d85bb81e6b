"""The pages under docs/reference, derived from the keys."""
