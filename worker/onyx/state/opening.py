"""Which location keeps the state of a cluster."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.settings import Settings
from onyx.storage.interface import GROUP, PRIVATE, Location, Purpose
from onyx.storage.opening import absolute, location_of

DEFAULT_FOLDER = ".onyx/state"
"""Below the data folder."""
_HINT = (
    "set ONYX_STATE_URL of all workers to a folder that they share and may write, or to "
    "s3://bucket/prefix"
)


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
