"""States in place of segments, for children whose windows are combined (`combine: true`).

A partial has the lineage of all segments that were folded into it, so acks, completion and replays
know nothing of it: the child acks each of the segments. Invariant: only first attempts are folded.
What the child cannot take as a whole it has read again, and then it comes as segments, of which it
takes those that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from onyx.base.on_demand import OnDemand
from onyx.base.runs import taken
from onyx.codec.values import encode_records
from onyx.errors import SegmentError
from onyx.flow.batch import U64, Batch
from onyx.flow.groups.keys import slots_of_shards
from onyx.flow.predicates import Resolve
from onyx.ledger.lineage import any_retried
from onyx.model.job import Job
from onyx.model.workflow import children
from onyx.task.channels.outbox import Groupings, Outbox, put_to_child, slots_of
from onyx.task.channels.wiring import ChildTask, Site
from onyx.transport.interface import Partial

if TYPE_CHECKING:
    from onyx.operators.windowed.combining import Combiner, States

SEGMENTS_MAX = 65_536
"""Segments whose lineage fits into a frame, beside the states."""
STATES_BYTES_MAX = 524_288
"""States, encoded, that fit into a frame beside the lineage; larger ones gain nothing."""

_COMBINER_OF: OnDemand[Callable[[Job, str, Resolve], Combiner | None]]
_COMBINER_OF = OnDemand("onyx.operators.windowed.combining:combiner_of")


Combiners = Mapping[str, "Combiner"]
"""The combiners of a task, by child task, of those children that are combined."""


def combiners(job: Job, task: str, resolve: Resolve) -> Combiners:
    """The combiners of a task.

    Raises:
        UserError: a function of a child is not registered or not of the right kind.
    """
    entries = [job.entry(child) for child in children(job.workflow)[task]]
    found = {
        each.name: _COMBINER_OF.load()(job, each.name, resolve) for each in entries if each.combine
    }
    return {name: each for name, each in found.items() if each is not None}


def put_combined(
    outbox: Outbox,
    combiner: Combiner,
    groupings: Groupings,
    child: ChildTask,
    batch: Batch,
    hashes: U64 | None,
    watermark: int | None,
) -> None:
    """Put a batch into the outbox as states, or as it is where that cannot be or gains nothing.

    Args:
        combiner: of the child.
        hashes: of the group keys, if they are known.
        watermark: the latest one that was sent to the child.
    """
    partials = None
    if _may_fold(batch):
        states = combiner.fold(batch, watermark)
        if states is not None:
            partials = _partials(states, groupings, child, batch, hashes)
    if partials is None:
        put_to_child(outbox, groupings, child, batch, hashes)
        return
    for site, partial in partials:
        outbox.put_to(site, partial)


def _may_fold(batch: Batch) -> bool:
    roots = batch.roots
    return roots is not None and len(batch) <= SEGMENTS_MAX and not any_retried(roots)


def _partials(
    states: States, groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None
) -> list[tuple[Site, Partial]] | None:
    """What each peer of the child gets; None: the states are too large, or have no encoding."""
    try:
        found = list(_split(states, groupings, child, batch, hashes))
    except SegmentError:
        return None
    return found if all(len(each.states) <= STATES_BYTES_MAX for _, each in found) else None


def _split(
    states: States, groupings: Groupings, child: ChildTask, batch: Batch, hashes: U64 | None
) -> Iterator[tuple[Site, Partial]]:
    """A partial for each peer: by the slot of each shard, as for each segment of its groups."""
    roots, ids, count = batch.roots, batch.ids, len(child.sites)
    assert roots is not None, "only segments with lineage are folded"
    assert ids is not None
    slots = slots_of(groupings, child, batch, hashes) if count > 1 else None
    of_shards = slots_of_shards(np.fromiter(states, np.uint64, len(states)), count).tolist()
    for slot, site in enumerate(child.sites):
        mine = list(chain.from_iterable(compress(states.values(), map(slot.__eq__, of_shards))))
        if slots is None:
            yield site, Partial(encode_records(mine), roots, ids)
        elif len(where := (slots == slot).nonzero()[0]):
            yield site, Partial(encode_records(mine), taken(roots, where), taken(ids, where))
