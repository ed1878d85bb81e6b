"""Spark stages of the user in the middle of a query: what comes to them, and their results."""
