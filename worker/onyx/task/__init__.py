"""The task lifecycle: a table of phases and one `step()`, and what sources, functions, sinks do."""
