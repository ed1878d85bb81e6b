"""Which location keeps the state of a cluster, and that all workers have the same one.

A path that is the same everywhere can be a folder of its own in each pod (`/tmp` is). A peer that
recovers shards would find no log there and begin with empty windows. So the first peer writes a
random name into the location, and a document in ZooKeeper has the first name of all: a peer that
finds another name in its location has another location, or one that was emptied since.

Rejected: a look for the logs of the other peers, since a task may have only one peer; a rule about
paths, since any path may be mounted from anywhere.
"""

from __future__ import annotations

from onyx.errors import StateError, Unavailable, UserError
from onyx.ids import JobId, PeerId
from onyx.log import documents
from onyx.log.interface import LogReader
from onyx.settings import Settings
from onyx.storage.interface import GROUP, PRIVATE, BlobStore, Location, Purpose
from onyx.storage.opening import absolute, location_of

DEFAULT_FOLDER = ".onyx/state"
"""Below the data folder."""
_HINT = (
    "set ONYX_STATE_URL of all workers to a folder that they share and may write, or to "
    "s3://bucket/prefix"
)


LOCATION_NAME = "location.id"
"""Beside the tasks of a job, whose names have no dot."""


def open_store(location: str, group_access: bool = False) -> Location:
    """The location of state at `s3://bucket/prefix` or in a folder, which is made when first
    needed.

    Args:
        group_access: whether more than the user who runs the worker may use the folder.

    Raises:
        UserError: the URL is wrong or carries credentials.
    """
    modes = GROUP if group_access else PRIVATE
    try:
        return location_of(location, Purpose("state cannot be kept in", _HINT, modes, prunes=True))
    except UserError as error:
        raise type(error)(f"ONYX_STATE_URL {error}") from error


def state_location(settings: Settings) -> str:
    """URL or path of the location where a worker with these settings keeps state."""
    return absolute(settings.state.url or DEFAULT_FOLDER, settings.data_dir)


def check_shared(store: BlobStore, log: LogReader, job: JobId, peer: PeerId, location: str) -> None:
    """Make sure that `store` is where all peers keep the state of the job. Blocks; to be called
    before anything of the job is read there.

    Args:
        peer: who asks; the location is named so if it has no name yet.
        location: the URL or path of the store, for the message.

    Raises:
        StateError: it is another location than that of who came first.
        Fenced, Unavailable, UserError: as everything of log and store.
    """
    found = _named(store, job, peer)
    path = documents.location(job)
    first = log.get_document(path)
    if first is None and log.put_document(path, found, None) is None:
        first = log.get_document(path)
    if first is not None and first.data != found:
        raise StateError(
            f"the state of this job is not in {location} of this worker: that is not the "
            "location where the other workers keep it, or what was there is gone. Set "
            "ONYX_STATE_URL of all workers to one folder that they share and that stays, or to "
            "s3://bucket/prefix, and submit the job again"
        )


def is_shared(store: BlobStore, log: LogReader, job: JobId) -> bool:
    """Whether `store` is where the peers keep the state of the job; nothing is written."""
    first = log.get_document(documents.location(job))
    return first is not None and store.read(f"{job}/{LOCATION_NAME}") == first.data


def _named(store: BlobStore, job: JobId, peer: PeerId) -> bytes:
    """The name of the location, which the first who comes gives it."""
    name, own = f"{job}/{LOCATION_NAME}", peer.encode()
    if store.create(name, own):
        return own
    found = store.read(name)
    if found is None:
        raise Unavailable(f"the state of job {job} is being removed")
    return found
