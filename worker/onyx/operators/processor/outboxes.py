"""Outboxes of tasks: what may be sent is looked at where it is offered, so that a processor finds
the line that offers what cannot be."""

from __future__ import annotations

from typing import Any, Literal

from onyx.codec.refusals import fits_alone, refusal
from onyx.codec.refused_rows import refused_rows
from onyx.errors import UserFunctionError, describe_type
from onyx.flow.apply import result_columns
from onyx.processors import Outbox

SEGMENTS_MAX = 1_024
"""At so many segments an outbox is full."""
ENTRIES_MAX = 1_024
"""So many entries of a snapshot are taken at once."""


def outbox_of(
    takes: Literal["dicts", "arrow"],
    segments_max: int = SEGMENTS_MAX,
    entries_max: int = ENTRIES_MAX,
) -> Outbox:
    """The outbox of a task that has segments, or columns."""
    accept = _accept_columns if takes == "arrow" else _accept_segment
    return Outbox(accept, segments_max, entries_max)


def _accept_segment(item: Any) -> tuple[Any, int]:
    if type(item) is not dict or not fits_alone(item):
        error = refusal(item)
        if error is not None:
            raise error
    return item, 1


def _accept_columns(item: Any) -> tuple[Any, int]:
    columns = None if isinstance(item, list | tuple) else result_columns(item)
    if columns is None:
        raise UserFunctionError(
            f"the outbox of a task over columns is offered {describe_type(item)}: offer a record "
            "batch, or what has the Arrow C stream interface"
        )
    found = refused_rows(columns)
    if found:
        raise found[0][1]
    return columns, len(columns)
