"""Who has sent a batch, for tasks that keep apart what comes from each of their parents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onyx.flow.batch import Batch
from onyx.ids import PeerId, TaskName
from onyx.transport.interface import Delivery


def batches_apart(
    deliveries: Iterable[Delivery], upstream: Mapping[PeerId, TaskName]
) -> Iterator[Batch]:
    """The batches among what was received, each with its parent task.

    Args:
        upstream: peers of the tasks above, each with its task.
    """
    for delivery in deliveries:
        if isinstance(delivery.item, Batch):
            delivery.item.upstream = upstream[delivery.channel.source]
            yield delivery.item
