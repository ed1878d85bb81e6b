"""Who follows the log: a function, which is given nothing more once it has raised.

Going on with the next entry was rejected: a function that folds entries would go on with a wrong
value. Giving the same entry again was rejected too: the function may have done half of its work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from onyx.log.interface import Origin
from onyx.replica.command import Entry

logger = logging.getLogger("onyx.log")


class Reader:
    """One reader of the log. `give` belongs to the thread of the log."""

    def __init__(
        self,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            deliver: is given each entry, and an origin that stands for entries that are gone.
            failed: is given, once, what `deliver` has raised.
        """
        self._deliver = deliver
        self._failed = failed
        self.stopped = False
        """The reader is given nothing more."""

    def give(self, item: Entry | Origin) -> None:
        """Give the reader the next entry."""
        if self.stopped:
            return
        try:
            self._deliver(item)
        except BaseException as error:  # a function that calls exit() must not end the log's thread
            self.stopped = True
            logger.exception(
                "%s, which follows the log, has raised at entry %d and is given no more entries: "
                "mend it, and follow the log again after position %d",
                getattr(self._deliver, "__qualname__", repr(self._deliver)),
                item.position,
                item.position - 1,
            )
            self._failed(error)

    def stop(self) -> None:
        """Give nothing more; a call that has begun is not waited for."""
        self.stopped = True
