"""What runs of a query leave in the places of the Spark stages of their job.

They lie where workers and Spark both see them, so they do not go with the scratch folder. A run
has a folder there, `<incarnation>/<attempt>`, and its worker removes that when the run is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from onyx.ids import GroupId
from onyx.spark.driver.storage import Place, names_in, remove


class Leftovers:
    """What runs leave in the places of a job's stages, as the driver of the job removes it."""

    def __init__(self, places: Sequence[Place], own: GroupId) -> None:
        self._places = places
        self._own = own

    def fence(self, live: Iterable[GroupId]) -> None:
        """Remove what is of other groups than these. Somebody there who still runs a query has lost
        its files, and fails."""
        kept = set(live)
        for place in self._places:
            for name in names_in(place):
                if name not in kept:
                    remove(place / name)
            _remove_if_empty(place)

    def sweep(self, attempt: str) -> None:
        """Remove what a run of this worker has left."""
        for place in self._places:
            remove(place / self._own / attempt)
            _remove_if_empty(place / self._own)
            _remove_if_empty(place)


def _remove_if_empty(folder: Place) -> None:
    if isinstance(folder, Path):
        with contextlib.suppress(OSError):
            folder.rmdir()
