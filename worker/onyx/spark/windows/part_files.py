"""What one chunk of the state log does to files: it names new parts, and gives up old files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onyx.spark.windows.spool import Spool


class PartFiles:
    """A part that records name, on its way to the disk (`windows.running.Files`)."""

    def __init__(self, folder: Spool, name: str, table: pa.Table) -> None:
        self._folder = folder
        self._name = name
        self._table: pa.Table | None = table

    @property
    def written(self) -> bool:
        """Whether it is durable. From any thread."""
        return self._table is None

    def write(self) -> None:
        """Make it durable. Raises Unavailable."""
        if self._table is not None:
            self._folder.write(self._name, self._table)
            self._table = None

    def remove(self) -> None:
        """It is needed."""


class Garbage:
    """Files that nobody needs once the chunk is durable."""

    def __init__(self, folder: Spool, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names

    def write(self) -> None:
        """They are there."""

    def remove(self) -> None:
        """Remove them; what cannot be removed goes with the job."""
        for name in self._names:
            self._folder.remove(name)
