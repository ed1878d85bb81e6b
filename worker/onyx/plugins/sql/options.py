"""Options of the `sql` output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from onyx.base.path_names import PLAIN_NAMES, is_plain_name
from onyx.errors import Problem
from onyx.model.report import show
from onyx.plugins.options import Options
from onyx.plugins.rolling import TRANSACTION_BYTES_MAX, TRANSACTION_LIMITS


class SqlOptions(Options, frozen=True):
    """Where rows go, and how a segment becomes one."""

    table: Annotated[str, msgspec.Meta(min_length=1)]
    """Table to write to, which is there already."""
    url: str | None = None
    """`postgresql://user@host/database`, `sqlite:///path`, or another URL of SQLAlchemy."""
    url_env: str | None = None
    """Variable of the workers' environment that holds the URL, for one with a password."""
    schema: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Schema of the tables; without it the one that the database takes."""
    columns: list[str] | dict[str, str] | None = None
    """Keys to write, or `{key: column}`. Without it every key of a segment is a column."""
    mode: Literal["insert", "upsert"] = "insert"
    """`insert` adds rows; `upsert` replaces the row with the same `keys`."""
    keys: list[str] = msgspec.field(default_factory=list)
    """upsert: columns of a primary key or unique constraint."""
    positions_table: Annotated[str, msgspec.Meta(min_length=1)] = "onyx_positions"
    """Table that says how far each writer has come; made if it is missing."""
    roll_bytes: Annotated[int, msgspec.Meta(ge=1, le=TRANSACTION_BYTES_MAX)] = (
        TRANSACTION_LIMITS.size_bytes
    )
    """End a transaction at about this size."""
    roll_segments: Annotated[int, msgspec.Meta(ge=1)] = TRANSACTION_LIMITS.segments
    """End a transaction after so many segments."""
    roll_seconds: Annotated[float, msgspec.Meta(gt=0)] = TRANSACTION_LIMITS.age_s
    """End a transaction after this time; until then its segments are not acked."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        if self.url is None and self.url_env is None:
            yield Problem("url", "is missing", "or name a variable that holds it with urlEnv")
        if self.url is not None and self.url_env is not None:
            yield Problem("urlEnv", "cannot be there together with url", "take one of them")
        if self.url is not None and "://" not in self.url:
            yield Problem("url", "is no URL, as postgresql://user@host/database or sqlite:///path")
        for option, name in (
            ("table", self.table), ("schema", self.schema), ("positionsTable", self.positions_table)
        ):  # fmt: skip
            if name is not None and not is_plain_name(name):
                what = f"is {show(name)}, which is no name in a database"
                yield Problem(option, what, f"use {PLAIN_NAMES}")
        if self.columns is not None and not self.columns:
            yield Problem("columns", "is empty", "leave it out to write every key")
        if self.mode == "upsert" and not self.keys:
            yield Problem("keys", "is missing: upsert needs to know by what rows are the same")
        if self.mode == "insert" and self.keys:
            yield Problem("keys", "is only for mode: upsert")
        if self.positions_table == self.table:
            yield Problem("positionsTable", "is the table to write to", "it must be another one")
