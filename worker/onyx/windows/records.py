"""Records: changes of the state of a shard as plain data, to be stored and applied again.

A record is a list: its kind, the id of its window, and what the kind needs.

    set      extent, groups, states       states of an extent
    add      extent, group, updates       updates of an open aggregation, in order
    delete   extent, groups               groups that an extent has no more
    clear    extent                       all groups of the shard
    fired    trigger, extent, groups      a watermark trigger has fired, but for these groups
    fired-also trigger, extent, groups    it has fired for these groups
    under-way trigger, event, extent, groups
                                          what else fires a shard has come to these groups of an
                                          extent; None: the whole shard has fired
    sessions group, key, sessions         all sessions: first, last, state, triggers that have fired
    session-add group, key, [place, update]...
    states   trigger, groups, states      states of a trigger
    no-states trigger, groups
    timer    trigger, due in ms
    watermark how far event time is
"""

from __future__ import annotations

from typing import Any

Record = list[Any]
"""One change."""
Records = dict[int, list[Record]]
"""Changes by shard, in order."""


def tell(records: Records, shard: int, record: Record) -> None:
    """Add a record to those of a shard."""
    if shard in records:
        records[shard].append(record)
    else:
        records[shard] = [record]
