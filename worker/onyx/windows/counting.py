"""Groups of a batch for which no `segment` trigger fires: their segments are folded as a whole.

Where triggers only count segments, most groups of most batches stay below the threshold. Nobody
looks at their segments one by one, so they cost no step each, and columns do not become dicts. Only
the segments of groups that reach it are added one after the other, because what fires has the state
as it is at that segment. Groups know nothing of each other, so nothing else is different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onyx.flow.batch import Indices
from onyx.keystate.coded import Groups, Keyed
from onyx.windows.triggers.segment import SegmentTrigger
from onyx.windows.triggers.trigger import Trigger


class Counted(NamedTuple):
    """A batch, as the triggers count it."""

    quiet: Indices | None
    """Segments of groups for which none fires; None: all."""
    loud: Indices
    """The others."""
    counts: Mapping[Any, int]
    """How many segments the quiet groups have."""


def counting(triggers: Iterable[Trigger]) -> Sequence[SegmentTrigger]:
    """The triggers that look at segments, if they only count them; none otherwise. (With
    `fireAllExtents` extents fire in the order in which they began, which would be another one.)"""
    asked = [each for each in triggers if each.by_segment]
    found = [each for each in asked if isinstance(each, SegmentTrigger)]
    if len(found) < len(asked) or any(each.declared.fire_all_extents for each in found):
        return ()
    return found


def count(triggers: Sequence[SegmentTrigger], keys: Keyed) -> Counted:
    """Find the groups for which a trigger fires, and count the segments of the others."""
    many: Mapping[Any, int]
    if isinstance(keys, Groups):
        many = dict(zip(keys.keys, keys.counts(), strict=True))
    else:
        many = Counter(keys)
    loud = {
        key for key, rows in many.items() if not all(each.is_quiet(key, rows) for each in triggers)
    }
    counts = {key: rows for key, rows in many.items() if key not in loud} if loud else many
    for trigger in triggers:
        trigger.add(counts)
    if not loud:
        return Counted(None, np.empty(0, np.intp), counts)
    mask = _in(keys, loud)
    return Counted(np.flatnonzero(~mask), np.flatnonzero(mask), counts)


def _in(keys: Keyed, wanted: Collection[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    each = keys.keys if isinstance(keys, Groups) else keys
    found = np.fromiter(map(wanted.__contains__, each), np.bool_, len(each))
    return found[keys.codes] if isinstance(keys, Groups) else found
