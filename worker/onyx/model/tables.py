"""Which tables a task of a job looks up."""

from __future__ import annotations

from onyx.model.job import CatalogEntry


def looked_up(entry: CatalogEntry) -> tuple[str, ...]:
    """The tables that a task names, each once."""
    joined = () if entry.join is None else (entry.join.table,)
    return tuple(dict.fromkeys((*joined, *entry.tables)))
