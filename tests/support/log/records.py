"""Records of state logs for tests that are not about windows: any values, and those back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onyx.keystate.records import Record, StagedOutput
from onyx.state.shard_states import ShardState


def notes(*values: Any) -> list[Record]:
    """One record a value."""
    return [StagedOutput({"note": value}) for value in values]


def noted(records: Iterable[Record]) -> list[Any]:
    """The values of records that `notes` made."""
    return [each.token["note"] for each in records if isinstance(each, StagedOutput)]


def notes_of(state: ShardState) -> list[Any]:
    """The values that a shard has, in order."""
    return [value for part in state.records() for value in noted(part)]
