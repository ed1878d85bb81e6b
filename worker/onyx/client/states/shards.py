"""Key groups of a task that have what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.keystate.extents import ALL

EVERYWHERE: Sequence[int] = range(SHARDS)


def by_group(key: Any) -> Sequence[int]:
    """Where states are split by group: that of a group, or all."""
    return EVERYWHERE if key is ALL else [shard_of(key)]
