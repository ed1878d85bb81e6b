"""What a task takes from its inbox as batches; and the two ways in that a Spark stage has.

A stage in the middle of a job reads its inbox, and what it has made of that: in turn, so that
neither waits for the other. Segments of several upstream tasks are different frames of the stage,
those of a join are of different sides. So they stay apart (those of a processor, which may leave
some, in `channels/edges`). Control items follow from all that came before them: they go behind the
last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onyx.flow.batch import Batch, by_format
from onyx.ids import PeerId, TaskName
from onyx.task.channels.senders import batches_apart
from onyx.task.parts.work import Work
from onyx.transport.interface import Control, Delivery, Partial


def take_deliveries(work: Work, deliveries: Sequence[Delivery]) -> bool:
    """Make them one batch, or one of each form, beside states of windows, and the control items
    behind; False if there are none."""
    batches: list[Batch] = []
    for delivery in deliveries:
        if isinstance(delivery.item, Control):
            work.controls.append((delivery.channel.source, delivery.item))
        elif isinstance(delivery.item, Partial):
            work.partials.append(delivery.item)
        else:
            batches.append(delivery.item)
    work.take(by_format(batches) if batches else [])
    return bool(deliveries)


def read_apart(
    work: Work, upstream: Mapping[PeerId, TaskName], inbox: Callable[[], Sequence[Delivery]]
) -> bool:
    """Take a batch of one parent task, of which there may be several.

    Args:
        upstream: peers of the tasks above, each with its task.
        inbox: takes what waits there.
    """
    if work.others:
        _next_frame(work)
        return True
    return _take_frames(work, upstream, inbox())


def read_either(
    work: Work,
    upstream: Mapping[PeerId, TaskName],
    inbox: Callable[[], Sequence[Delivery]],
    result: Callable[[], list[Batch]],
) -> bool:
    """Take a batch of the stage, from the other side than the last one if that has something.

    Args:
        work: gets the batch.
        upstream, inbox: as in `read_apart`.
        result: reads what the stage has made.
    """
    if work.others:
        _next_frame(work)
        return True
    for own in (not work.own, work.own):
        if own:
            work.take(result())
            found = work.batch is not None
        else:
            found = _take_frames(work, upstream, inbox())
        if found:
            work.own = own
            return True
    return False


def _take_frames(
    work: Work, upstream: Mapping[PeerId, TaskName], deliveries: Sequence[Delivery]
) -> bool:
    """Keep apart what came from different tasks."""
    for delivery in deliveries:
        if isinstance(delivery.item, Control):
            work.behind.append((delivery.channel.source, delivery.item))
    frames: dict[TaskName, list[Batch]] = {}
    for batch in batches_apart(deliveries, upstream):
        frames.setdefault(TaskName(batch.upstream or ""), []).append(batch)
    for task, batches in frames.items():
        for batch in by_format(batches):
            batch.upstream = task
            work.others.append(batch)
    _next_frame(work)
    return bool(deliveries)


def _next_frame(work: Work) -> None:
    """Go on with the next of them. Behind the last one are the control items."""
    work.batch = work.others.popleft() if work.others else None
    if not work.others:
        work.controls, work.behind = [*work.controls, *work.behind], []
