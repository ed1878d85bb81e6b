"""How much is held for the writes of one input, together, and what of it nobody will commit.

What is held lies in a store that all workers see, and each may hold. So the sum is what a listing
says, with what this process has added since; it is listed again often enough that all workers
together go beyond the bound by a part of it only.

Who has begun a write may never commit it. A file has no age in a store, so a process remembers
since when it has seen the requests of a writer unchanged. After a day they go.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence

from onyx.journal.held import COMMITTED, HELD
from onyx.storage.interface import BlobStore

REQUEST_BYTES = 512
"""What a request counts beside its bytes: a name, and a file or an object."""
LOOK_INTERVAL_S = 10.0
AGAIN_S = 1.0
"""Between two listings where there is no room."""
SHARE = 16
"""After the n-th part of the bound was added here the store is listed again."""
GIVEN_UP_S = 86_400.0
"""How long the requests of a writer are held that do not change."""

_WRITER = re.compile(r"([^/]+/\d{20})/[^/]+\Z")
"""The folder of a writer, with that of its batch below that of the input."""


class HeldRoom:
    """The room of one input. Methods block, and raise like those of the store."""

    def __init__(
        self, store: BlobStore, jobs: Sequence[str], task: str, clock_s: Callable[[], float]
    ) -> None:
        """`jobs` are the job and those that it upgraded, as in `HeldBatch`."""
        self._store = store
        self._folders = [f"{job}/{HELD}/{task}/" for job in jobs]
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._total = 0
        self._added = 0
        self._looked_s: float | None = None
        self._seen: dict[str, tuple[int, float]] = {}
        """By the folder of a writer, the size of what it holds, and since when it is that."""

    def take(self, size_bytes: int, bytes_max: int) -> str:
        """Count a request that is to be held; or why there is no room for it."""
        size = size_bytes + REQUEST_BYTES
        with self._lock:
            now_s = self._clock_s()
            age_s = LOOK_INTERVAL_S if self._looked_s is None else now_s - self._looked_s
            is_full = self._total + size > bytes_max
            if (
                age_s >= LOOK_INTERVAL_S
                or (is_full and age_s >= AGAIN_S)
                or self._added + size > bytes_max // SHARE
            ):
                self._look(now_s)
            if self._total + size > bytes_max:
                return (
                    f"writes hold {self._total:,} bytes that are not committed, of {bytes_max:,} "
                    "that they may (journalBytesMax, for each partition); commit them, or in "
                    "smaller batches"
                )
            self._total += size
            self._added += size
            return ""

    def _look(self, now_s: float) -> None:
        sizes: dict[str, int] = {}
        for folder in self._folders:
            for name, size in self._store.list(folder):
                writer = name.rpartition("/")[0]
                sizes[writer] = sizes.get(writer, 0) + size + REQUEST_BYTES
        before = self._seen
        self._seen = {
            writer: before[writer] if before.get(writer, (-1,))[0] == size else (size, now_s)
            for writer, size in sizes.items()
        }
        for writer, (_, since_s) in self._seen.items():
            if now_s - since_s >= GIVEN_UP_S:
                self._give_up(writer)
        self._total, self._added, self._looked_s = sum(sizes.values()), 0, now_s

    def _give_up(self, writer: str) -> None:
        """Remove what a writer holds, unless its batch is committed, in whichever job that was."""
        found = _WRITER.search(writer)
        if found is None:
            return  # what says that a batch is committed or taken, which goes with later ones
        if any(self._store.read(f"{each}{found[1]}/{COMMITTED}") for each in self._folders):
            return
        for name, _ in self._store.list(f"{writer}/"):
            self._store.delete(name)
