"""Which segments of a batch are late, for a window whose extents are known by number."""

from __future__ import annotations

import numpy as np

from onyx.keystate.coded import Keyed, rows
from onyx.keystate.groups import Shards
from onyx.windows.assigning.assigner import Assigner, Part
from onyx.windows.watermarks import ShardWatermarks


def without_late(
    parts: list[Part],
    keys: Keyed,
    lateness: int | None,
    assigner: Assigner,
    watermarks: ShardWatermarks,
    shards: Shards,
) -> tuple[list[Part], list[int]]:
    """Parts of extents that are open, and the indices of segments that none of them has.

    Args:
        lateness: how far the watermark may be past the end of an open extent; None: any.
    """
    if lateness is None:
        return parts, []
    ahead = bool(watermarks.own)
    of_rows = np.array([shards[key] for key in rows(keys)], np.int64) if ahead else None
    kept: list[Part] = []
    late: list[int] = []
    for part in parts if of_rows is None else _by_shard(parts, of_rows):
        indices = np.arange(len(keys)) if part.indices is None else part.indices
        watermark = watermarks.task
        if of_rows is not None and len(indices):
            watermark = watermarks.of(int(of_rows[indices[0]]))
        open_ = tuple(n for n in part.numbers if assigner.bounds(n)[1] + lateness >= watermark)
        if open_:
            kept.append(Part(open_, part.indices))
        else:
            late += indices.tolist()
    return kept, sorted(late)


def _by_shard(parts: list[Part], of_rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Part]:
    """Parts of one shard each, because shards differ in their watermarks."""
    found: list[Part] = []
    for part in parts:
        indices = np.arange(len(of_rows)) if part.indices is None else part.indices
        mine = of_rows[indices]
        found += [Part(part.numbers, indices[mine == shard]) for shard in np.unique(mine)]
    return found
