"""What runs of a query leave in the `path` of the Spark stages of their job.

They lie where workers and Spark both see them, so they do not go with the scratch folder. A run
has a folder there, `<incarnation>/<attempt>`, and its worker removes that when the run is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from onyx.errors import OnyxError
from onyx.ids import GroupId
from onyx.storage.interface import Location


class Leftovers:
    """What runs leave in the `path` of a job's stages, as the driver of the job removes it."""

    def __init__(self, locations: Sequence[Location], own: GroupId) -> None:
        self._locations = locations
        self._own = own

    def fence(self, live: Iterable[GroupId]) -> None:
        """Remove what is of other groups than these. Somebody there who still runs a query has lost
        its files, and fails."""
        kept = set(live)
        for location in self._locations:
            with contextlib.suppress(OnyxError):
                for entry in location.entries() or ():
                    if entry.name not in kept:
                        _remove(location, entry.name)

    def sweep(self, attempt: str) -> None:
        """Remove what a run of this worker has left."""
        for location in self._locations:
            _remove(location, f"{self._own}/{attempt}")


def _remove(location: Location, name: str) -> None:
    """Remove a folder, and those that it was in if nothing is left there, as far as that is
    possible now."""
    with contextlib.suppress(OnyxError):
        location.remove_tree(name)
        location.prune(name)
