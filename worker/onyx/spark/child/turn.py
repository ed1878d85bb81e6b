"""What a run of a stage has of the process that it is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from onyx.errors import Fenced
from onyx.spark.session.kept import Sessions


class Turn(msgspec.Struct, frozen=True):
    """What the child gives to a run."""

    sessions: Sessions
    group: str
    """A session for a run."""
    scratch: Path
    """Folder for files."""
    cancelled: Callable[[], bool] = lambda: False
    """Whether the run is to end soon."""
    begin_write: Callable[[], None] = lambda: None
    """Returns when a direct write is permitted, or the run cancelled."""
    seen: Callable[[], None] = lambda: None
    """Reports how far the run is; called before the session is closed."""

    def go_on(self) -> None:
        """Raises Fenced: the run was cancelled, perhaps while there was nothing to cancel."""
        if self.cancelled():
            raise Fenced("the run was cancelled")

    def may_write(self) -> None:
        """Returns when a direct write may begin. Raises like `go_on`."""
        self.begin_write()
        # The permission may have come because the run was cancelled while it waited for one.
        self.go_on()
