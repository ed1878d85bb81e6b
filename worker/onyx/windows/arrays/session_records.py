"""Sessions in arrays as records have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onyx.flow.batch import Indices
from onyx.keystate.coded import Groups
from onyx.keystate.groups import dump_key
from onyx.keystate.records import SetSessionArrays, SetSessions
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.array_forms import States
from onyx.windows.arrays.key_table import unpacked

Ints = NDArray[np.int64]


class Bounds(NamedTuple):
    """The first and the last coordinates of sessions."""

    lowers: Ints
    uppers: Ints


class Unpacked(NamedTuple):
    """What a record says of sessions."""

    groups: Groups
    counts: NDArray[np.int32]
    """How many sessions each group has: those of a group together."""
    bounds: Bounds
    states: States

    @property
    def whose(self) -> Indices:
        """The group of each session."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def sessions_of(record: SetSessionArrays) -> Unpacked:
    """The sessions of a record, as arrays."""
    groups = unpacked(record.keys, record.groups)
    lowers, uppers = (np.frombuffer(each, "<i8") for each in record.bounds)
    columns = zip(record.types, record.states, strict=True)
    states = tuple(np.frombuffer(data, kind) for kind, data in columns)
    return Unpacked(groups, np.frombuffer(record.counts, "<i4"), Bounds(lowers, uppers), states)


def as_objects(record: SetSessionArrays, aggregation: Aggregation) -> SetSessions:
    """What the record says, in objects."""
    form = aggregation.array_form()
    assert form is not None, "the record was made by one"
    its = sessions_of(record)
    states = aggregation.dump_all(form.to_python(its.states)) if its.states else []
    lowers, uppers = (each.tolist() for each in its.bounds)
    seen = {name: np.frombuffer(each, np.bool_).tolist() for name, each in record.fired.items()}
    fired = [[name for name in seen if seen[name][at]] for at in range(len(lowers))]
    ends = np.cumsum(its.counts).tolist()
    mine = [slice(end - many, end) for end, many in zip(ends, its.counts.tolist(), strict=True)]
    groups = [dump_key(key) for key in its.groups.keys]
    columns = [[each[at] for at in mine] for each in (lowers, uppers)]
    held, seen_by = [states[at] for at in mine], [fired[at] for at in mine]
    nothing = [None] * len(groups)
    return SetSessions(record.window, groups, nothing, columns[0], columns[1], held, seen_by)
