"""Windows that peers have Spark aggregate: the state is in files, which the state log names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onyx.client.states.checks import require_log
from onyx.client.states.state import Files, Restored
from onyx.client.states.windows import WindowState
from onyx.errors import UserError
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import Extent
from onyx.keystate.records import Record, of_window
from onyx.keystate.selection import Selection
from onyx.spark.windows.answers import AskedWindow


class WindowBySpark(WindowState, frozen=True):
    """A window with `engine: spark`. Implements `State`."""

    in_store = True
    by_files = True

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it has no groups, or its files do not have what is asked for."""
        self.require_groups(select)
        if self.by_session_key:
            raise UserError(
                f"window {self.name} has a sessionKey and engine: spark, whose files tell sessions "
                "of different keys apart but not which keys these are: emit what you want to see"
            )
        require_log(self.job, durable)

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """The window alone, without triggers."""
        (compiled,) = self.compiled(resolve).windows
        asked = AskedWindow(compiled, files(), self.shard_of)
        return lambda: OneBySpark(self.name, asked)


class OneBySpark:
    """One window of a task, restored to be asked. Implements `Restored`."""

    def __init__(self, name: str, asked: AskedWindow) -> None:
        self._name = name
        self._asked = asked

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply its records to a shard."""
        self._asked.restore(shard, of_window(records, self._name))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order. Raises like `AskedWindow`."""
        return self._asked.query(asked, extents_max)
