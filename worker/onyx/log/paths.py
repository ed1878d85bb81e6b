"""Where things are in ZooKeeper, below `/onyx/<tenancy>`.

    log/entry-0000000000    entries; sequential nodes only, any other child would make a gap
    pulse/<group>           ephemeral: this incarnation of a group lives
    origin                  position and digest of the replica that the log starts from
    chunks/<sha256>/...     content-addressed documents (`zookeeper/chunks`)
    documents/+<folder>/=<name>   small versioned documents
    parameters              what the first process of the cluster fixed for all
    owner                   who has the tenancy, if anybody says so (`owner`)

Folders and documents have different first characters, so that a document may be named as a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from onyx.base.path_names import path_name, path_of_names
from onyx.errors import SettingsError, UserError
from onyx.ids import GroupId, Position

ABOVE = "/onyx"
"""The node above all tenancies."""
ENTRY_PREFIX = "entry-"
_DOCUMENT = "the path of a document"
_ENTRY = re.compile(rf"{ENTRY_PREFIX}(\d{{10}})")


class Paths(msgspec.Struct, frozen=True):
    """The nodes of one tenancy."""

    tenancy: str

    def __post_init__(self) -> None:
        try:
            path_name(self.tenancy, "a tenancy id")
        except UserError as error:
            raise SettingsError(f"tenancy_id {error}") from error

    @property
    def root(self) -> str:
        """The node of the tenancy."""
        return f"{ABOVE}/{self.tenancy}"

    @property
    def log(self) -> str:
        """Parent of the entries."""
        return f"{self.root}/log"

    @property
    def entry_prefix(self) -> str:
        """For the creation of a sequential node."""
        return f"{self.log}/{ENTRY_PREFIX}"

    @property
    def pulses(self) -> str:
        """Parent of the pulses."""
        return f"{self.root}/pulse"

    @property
    def origin(self) -> str:
        """Position and digest of the replica that the log starts from."""
        return f"{self.root}/origin"

    @property
    def chunks(self) -> str:
        """Parent of the content-addressed documents."""
        return f"{self.root}/chunks"

    @property
    def documents(self) -> str:
        """Folder of all versioned documents."""
        return f"{self.root}/documents"

    @property
    def parameters(self) -> str:
        """What the first process of the cluster fixed for all."""
        return f"{self.root}/parameters"

    @property
    def owner(self) -> str:
        """Who has the tenancy."""
        return f"{self.root}/owner"

    def entry(self, position: Position) -> str:
        """The node of one entry."""
        return f"{self.entry_prefix}{position:010d}"

    def pulse(self, group: GroupId) -> str:
        """The node of one pulse."""
        return f"{self.pulses}/{path_name(group, 'the id of a group')}"

    def chunk(self, digest: str) -> str:
        """The node of the document with this digest."""
        return f"{self.chunks}/{path_name(digest, 'the digest of a document')}"

    def folder(self, folder: str) -> str:
        """Node of a folder of documents; of all documents if empty."""
        parts = [f"/+{name}" for name in path_of_names(folder, _DOCUMENT)] if folder else []
        return self.documents + "".join(parts)

    def document(self, path: str) -> str:
        """Node of a document."""
        *folders, name = path_of_names(path, _DOCUMENT)
        return f"{self.folder('/'.join(folders))}/={name}"


def entry_position(name: str) -> Position | None:
    """Position of a child of the log, or None for a node that is not an entry."""
    found = _ENTRY.fullmatch(name.rpartition("/")[2])
    return Position(int(found.group(1))) if found else None


def entry_positions(names: Iterable[str]) -> list[Position]:
    """Positions of the entries among the children of the log, in no order."""
    return [position for name in names if (position := entry_position(name)) is not None]


def folder_name(node: str) -> str | None:
    """Name of a folder in its folder, or None for a document."""
    return node[1:] if node.startswith("+") else None


def document_name(node: str) -> str | None:
    """Name of a document in its folder, or None for a folder."""
    return node[1:] if node.startswith("=") else None
