"""`join` of a function task: what its segments get from a table of the catalog, or from the state
of another task.

Rejected: `on`, as in SQL, for `key`: readers of YAML 1.1, kubectl among them, take it for `true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model.job.types import TaskName
from onyx.model.keys.compound import ListOf, OneOrMore
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Text


class LookupJoin(msgspec.Struct, frozen=True):
    """Segments get the row that a table has under their key, or what another task keeps there."""

    key: Annotated[
        str | tuple[str, ...],
        OneOrMore(Text()),
        Key(restriction="As many as the key of the table, or the groupByKey of the task, has."),
    ]
    """Key of a segment, or several keys, by whose value the row is found. A segment without a
    value there finds none."""
    table: Annotated[
        TaskName | None, Key(restriction="A task of type table. Needed, or state.")
    ] = None
    """Table that is looked up."""
    state: Annotated[
        str | None,
        Text(),
        Key(
            restriction="A value or a list of a function with state, or a global window of a "
            "grouped task; needs as. Not with engine: spark."
        ),
    ] = None
    """State that is looked up, by the name that `onyx state` has for it: `task.state` of a
    function, or the id of a window. Segments get what the peer that has the group keeps at that
    moment, which may be something else when they are read again."""
    durable: bool = False
    """Whether segments wait until all that they get of a state is durable, so that no crash takes
    it back. A batch then takes as long as a chunk of the state log, about
    `ONYX_STATE_CHUNK_INTERVAL_S`."""
    how: Literal["left", "inner"] = "left"
    """What becomes of a segment that finds no row. `left`: it goes on, with the values of `default`
    in the place of the row's. `inner`: it ends here."""
    default: Annotated[
        Mapping[str, Any], Key(restriction="Columns of the table. Not with how: inner.")
    ] = field(default_factory=lambda: EMPTY)
    """Values for a segment that finds no row, by column, of the type that the column has. Without
    one a value is null, and all of `as` is. What a state gives is one column, called as `as`."""
    columns: Annotated[
        tuple[str, ...] | None, ListOf(Text()), Key(restriction="Not with state.")
    ] = None
    """Columns of the table that a segment gets; with `[]` it gets none, and `inner` is a filter.
    By default all but the key of the table. A segment that has a value of its own in one of
    these places fails."""
    under: Annotated[str | None, Text(), Key(yaml="as")] = None
    """Key under which a segment gets the row, as a mapping within the segment, or the value of a
    state. By default the values of the row stand beside those of the segment."""
    at: Annotated[str | None, Key(restriction="Needs a table with versionKey, which needs it.")] = (
        None
    )
    """Key of a segment that holds a time: the row is the version that was valid then."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, of which there may be one."""
        return (self.key,) if isinstance(self.key, str) else self.key
