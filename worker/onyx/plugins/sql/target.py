"""Where the rows of an output go: the table, its keys, and the table of positions beside it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.errors import UserError
from onyx.model.report import show


class Target(msgspec.Struct, frozen=True):
    """Where rows go."""

    table: str
    schema: str | None
    columns: Mapping[str, str] | None
    """By key of the segment; None means that every key is a column."""
    keys: tuple[str, ...]
    """Columns by which a row replaces another one; none if rows are only added."""
    positions: str
    """Name of the table of positions."""

    def __post_init__(self) -> None:
        for name in (self.table, self.schema, self.positions):
            if name is not None and not is_plain_name(name):
                raise UserError(f"{show(name)} is no name in a database: use {PLAIN_NAMES}")
