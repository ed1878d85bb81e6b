"""`join` of a function task: what its segments get from a table of the catalog.

Rejected: `on`, as in SQL, for `key`: readers of YAML 1.1, kubectl among them, take it for `true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from onyx.model.job.types import TaskName
from onyx.model.keys.compound import ListOf, OneOrMore
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Text


@dataclass(frozen=True, slots=True)
class TableJoin:
    """Segments get the row that a table has under their key."""

    table: Annotated[TaskName, Key(restriction="A task of type table.")]
    """Table that is looked up."""
    key: Annotated[
        str | tuple[str, ...],
        OneOrMore(Text()),
        Key(restriction="As many as the key of the table has."),
    ]
    """Key of a segment, or several keys, by whose value the row is found. A segment without a
    value there finds none."""
    how: Literal["left", "inner"] = "left"
    """What becomes of a segment that finds no row. `left`: it goes on, with the values of `default`
    in the place of the row's. `inner`: it ends here."""
    default: Annotated[
        Mapping[str, Any], Key(restriction="Columns of the table. Not with how: inner.")
    ] = field(default_factory=lambda: EMPTY)
    """Values for a segment that finds no row, by column, of the type that the column has. Without
    one a value is null, and all of `as` is."""
    columns: Annotated[tuple[str, ...] | None, ListOf(Text())] = None
    """Columns of the table that a segment gets; with `[]` it gets none, and `inner` is a filter.
    By default all but the key of the table. A segment that has a value of its own in one of
    these places fails."""
    under: Annotated[str | None, Text(), Key(yaml="as")] = None
    """Key under which a segment gets the row, as a mapping within the segment. By default the
    values of the row stand beside those of the segment."""
    at: Annotated[str | None, Key(restriction="Needs a table with versionKey, which needs it.")] = (
        None
    )
    """Key of a segment that holds a time: the row is the version that was valid then."""
