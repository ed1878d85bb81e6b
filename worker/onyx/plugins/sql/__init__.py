"""Plugin `sql`: rows of a table as output."""
