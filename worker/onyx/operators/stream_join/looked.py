"""What a join looks at in a batch of one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from onyx.flow.arrays import Indices
from onyx.operators.stream_join.spans import Times


class Rows(msgspec.Struct, frozen=True):
    """Segments of a batch whose keys are of the same kind."""

    where: Indices
    """Their indices."""
    keys: tuple[pa.Array, ...]
    """A column for each part of the key; null: the key equals no other."""


class Looked(msgspec.Struct, frozen=True):
    """The segments of a batch."""

    times: Times
    rows: Sequence[Rows]
    """All segments, mostly together."""
    unique: Sequence[Any] | None
    """Values of the uniqueness key, if the task has one."""
