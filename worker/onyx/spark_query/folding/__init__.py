"""The windows of tasks in a query: over a share of the groups, and before the shuffle."""
