"""A path or URL as a location: the one module that asks which of them it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onyx.base.on_demand import OnDemand
from onyx.storage.interface import Location, Purpose
from onyx.storage.objects.urls import is_url, parse_url

if TYPE_CHECKING:
    from onyx.storage.folder import Folder
    from onyx.storage.s3 import Prefix

_FILE = "file:///"

_FOLDER: OnDemand[type[Folder]] = OnDemand("onyx.storage.folder:Folder")
_PREFIX: OnDemand[type[Prefix]] = OnDemand("onyx.storage.s3:Prefix")


def absolute(path: str, base: str) -> str:
    """A URL as it is, a path below a base; `file:///path` is a path."""
    path = path.removeprefix("file://") if path.startswith(_FILE) else path
    return path if is_url(path) else os.path.join(base, path)


def is_remote(path: str) -> bool:
    """Whether a path of a job leads to a store, which programs without a client of it do not
    see."""
    return is_url(path) and not path.startswith(_FILE)


def check_location(location: str) -> None:
    """Raises UserError where `location_of` would; nothing is loaded for it."""
    location = absolute(location, "")
    if is_url(location):
        parse_url(location)


def location_of(location: str, purpose: Purpose | None = None) -> Location:
    """The location at a path, or at `s3://bucket/prefix`. Nothing is made or requested yet.

    Raises:
        UserError: the URL is of an unknown kind, names no bucket or carries credentials.
    """
    location = absolute(location, "")
    if is_url(location):
        return _PREFIX.load()(parse_url(location), purpose)
    return _FOLDER.load()(Path(location), purpose)
