"""Every entry of the log, given to a function."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from onyx.ids import NO_POSITION, Position
from onyx.log.interface import Origin
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.replica.entry import Entry
from onyx.settings import Settings


class Subscription(msgspec.Struct, frozen=True):
    """A reader of the log; end it with `shutdown_subscription`."""

    close: Callable[[], None]


def subscribe_to_log(
    settings: Settings,
    deliver: Callable[[Entry | Origin], None],
    after: Position = NO_POSITION,
) -> Subscription:
    """Call `deliver` with every entry after a position, in order, on a thread of the log."""
    log = ZooKeeperClientLog(settings)
    unsubscribe = log.subscribe(after, deliver)

    def close() -> None:
        unsubscribe()
        log.close()

    return Subscription(close)


def shutdown_subscription(subscription: Subscription) -> None:
    """Stop reading the log."""
    subscription.close()
