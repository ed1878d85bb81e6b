"""Where a path of a job leads: a directory of this machine, or an object store."""

from __future__ import annotations

from pathlib import Path

from onyx.errors import UserError
from onyx.objects.urls import ObjectUrl, is_url, parse_url
from onyx.plugins.options import option_error
from onyx.plugins.parts.directory import DirectoryParts
from onyx.plugins.parts.objects import ObjectParts
from onyx.plugins.parts.writer import PartsPlace
from onyx.plugins.protocol import PluginContext


def located(context: PluginContext, path: str, option: str = "path") -> Path | ObjectUrl:
    """What an option of a task names.

    Raises:
        UserError: it is a URL that this version does not know, or one with credentials in it.
    """
    place = context.located(path)
    if not is_url(place):
        return Path(place)
    try:
        return parse_url(place)
    except UserError as error:
        raise option_error(context, option, str(error)) from error


def parts_at(place: Path | ObjectUrl, context: PluginContext) -> PartsPlace:
    """The parts of a task at a place."""
    if isinstance(place, ObjectUrl):
        return ObjectParts(place, context)
    return DirectoryParts(place, context)
