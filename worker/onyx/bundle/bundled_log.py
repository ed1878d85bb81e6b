"""A bundle as a log: whoever reads a cluster, such as the console, reads a bundle likewise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onyx.bundle.bundle_file import JobBundle
from onyx.client.client import Client
from onyx.errors import UserError
from onyx.ids import NO_POSITION, Position
from onyx.log.interface import Document, Origin
from onyx.replica import canonical
from onyx.replica.command import Entry


def client_of(bundle: JobBundle) -> Client:
    """A client of what is in a bundle, which can only read."""
    log: Any = BundledLog(bundle)  # what writes is not there
    return Client(log, canonical.decode(bundle.origin.replica).job_scheduler)


class BundledLog:
    """The half of a `ClientLog` that reads; nothing ever comes behind its last entry."""

    identity = 0

    def __init__(self, bundle: JobBundle) -> None:
        self._bundle = bundle

    def read(self, after: Position, entries_max: int = 10_000) -> Sequence[Entry]:
        """Entries after a position."""
        first = max(after - self._bundle.origin.position, 0)
        return self._bundle.entries[first : first + entries_max]

    def subscribe(
        self,
        after: Position,
        deliver: Callable[[Entry | Origin], None],
        failed: Callable[[BaseException], None] = lambda _: None,
    ) -> Callable[[], None]:
        """Nothing comes."""
        return lambda: None

    def origin(self, above: Position = NO_POSITION) -> Origin:
        """The replica before the first entry."""
        its = self._bundle.origin
        return its if its.position > above else Origin(NO_POSITION, b"")

    def get_chunk(self, digest: str) -> bytes:
        """A manifest. Raises UserError: it is not in the bundle."""
        found = self._bundle.chunks.get(digest)
        if found is None:
            raise UserError(f"the bundle of job {self._bundle.head.job} does not have it")
        return found

    def get_document(self, path: str) -> Document | None:
        """A document as it was."""
        return self._bundle.documents.get(path)

    def list_documents(self, folder: str) -> Sequence[str]:
        """Names of the documents in a folder."""
        return self._names(folder, 0)

    def list_folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder."""
        return self._names(folder, 1)

    def establish(self, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """The parameters that are known."""
        return parameters

    def close(self) -> None:
        """Nothing is open."""

    def _names(self, folder: str, below: int) -> Sequence[str]:
        found = (
            path.removeprefix(f"{folder}/").split("/")
            for path in self._bundle.documents
            if path.startswith(f"{folder}/")
        )
        return sorted({parts[0] for parts in found if len(parts) == below + 1})
