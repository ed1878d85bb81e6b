"""Every entry of the log, given to a function."""

from __future__ import annotations

import threading
from collections.abc import Callable

from onyx.ids import NO_POSITION, Position
from onyx.log.interface import LogReader, Origin
from onyx.log.opening import open_log
from onyx.replica.command import Entry
from onyx.settings import Settings


class Subscription:
    """A reader of the log; end it with `shutdown_subscription`."""

    def __init__(
        self,
        log: LogReader,
        deliver: Callable[[Entry | Origin], None],
        after: Position,
        forget_log: Callable[[], None] = lambda: None,
    ) -> None:
        self.failure: BaseException | None = None
        """What the function has raised; it is given nothing more then."""
        self._failed = threading.Event()
        self._forget_log = forget_log
        self._stop = log.subscribe(after, deliver, self._fail)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait, at most so long, and raise what the function raises meanwhile or has raised."""
        self._failed.wait(timeout_s)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Stop reading the log."""
        self._stop()
        self._forget_log()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._failed.set()


def subscribe_to_log(
    settings: Settings,
    deliver: Callable[[Entry | Origin], None],
    after: Position = NO_POSITION,
) -> Subscription:
    """Call `deliver` with every entry after a position, in order, on a thread of the log. An
    exception of `deliver` ends the subscription, and is logged and kept in `failure`."""
    log = open_log(settings)
    return Subscription(log, deliver, after, log.close)


def shutdown_subscription(subscription: Subscription) -> None:
    """Stop reading the log, and raise what the function has raised, if that ended the reading."""
    subscription.close()
    if subscription.failure is not None:
        raise subscription.failure
