"""Repeats told by the value of a windowed task's `uniquenessKey`.

A segment without a value cannot be told from others: the second one would count as a repeat of the
first and be lost silently, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.task.windowing import Windowing


def first_seen(
    task: str, key: str, windowing: Windowing, shards: Sequence[int], segments: Sequence[Segment]
) -> list[bool]:
    """For each segment, with its shard, whether it is new.

    Raises:
        UserError: a segment has no value, or one that cannot be told from others.
    """
    values = [segment.get(key) for segment in segments]
    if any(value is None for value in values):
        raise UserError(
            f"task {task}: a segment has no {key!r}, its uniquenessKey, and cannot be told from "
            "others without; set it before, or leave such segments out with a flow condition"
        )
    try:
        return windowing.first_seen(shards, values)
    except UserError as error:
        raise UserError(f"task {task}: uniquenessKey {key!r}: {error}") from error
