"""The tables of one task on one peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onyx.ids import JobId
from onyx.joins.table import Table
from onyx.tables.shared import SharedTable, SharedTables


@dataclass(slots=True)
class TaskTables:
    """What a task looks up. Other tasks of the process may look up the same tables."""

    job_id: JobId
    shared: SharedTables
    by_name: Mapping[str, SharedTable]
    left: bool = False

    @property
    def loaded(self) -> bool:
        """Whether all are there. Raises as `SharedTable.loaded`."""
        loaded = [table.loaded() for table in self.by_name.values()]  # they load side by side
        return all(loaded)

    @property
    def now(self) -> Mapping[str, Callable[[], Table]]:
        """Each of them, as it is now."""
        return {name: table.now for name, table in self.by_name.items()}

    def tend(self) -> None:
        """Have those read again for which it is time."""
        for table in self.by_name.values():
            table.tend()

    def leave(self) -> None:
        """The task ends. May be called again."""
        names, self.left = () if self.left else tuple(self.by_name), True
        for name in names:
            self.shared.leave(self.job_id, name)
