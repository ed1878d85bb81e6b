"""The input half of a task with a Spark stage: rows of results, bundle after bundle, as segments.

There are always `PARTITIONS` partitions. File i of the result of bundle b belongs to partition
b + i, modulo their number, and a partition has the rows of its files one after the other. Results
are final, so these positions never change. The partitions end behind the result of the last bundle.

Rejected: a partition for each file, because partitions are listed before anything is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.plugins.bases import partition_names
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import folder_of
from onyx.spark.middle.result_reader import FIRST, PARTITIONS, ResultReader
from onyx.spark.result_names import SUFFIX


class StageResults(Input):
    """The input of one peer."""

    examined = True
    cooperative = False
    """Beside the half that writes."""

    def __init__(self, context: PluginContext, options: MiddleOptions) -> None:
        self._context = context
        self._folder = folder_of(context, options)
        self._files = FilesInput(
            context,
            InputOptions(path=f"{self._folder.location}/*{SUFFIX}", hive_partitioning=False),
        )

    def partitions(self) -> Sequence[str]:
        """Always the same."""
        return partition_names(PARTITIONS)

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader of one of them."""
        return ResultReader(
            self._folder, int(partition), cursor, self._files.open, self._context.clock
        )

    def close(self) -> None:
        """Leave the task; results stay."""
        self._files.close()


def first_needed(cursors: Sequence[Cursor]) -> int:
    """The first bundle whose result is read again, or was not read yet, by the cursors of all
    partitions. Until each has one, all are needed."""
    if len(cursors) < PARTITIONS:
        return FIRST
    return min((each.state or (FIRST, 0))[0] for each in cursors)
