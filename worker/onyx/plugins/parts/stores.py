"""Where the parts of a task are staged and published."""

from __future__ import annotations

from onyx.base.path_names import path_name
from onyx.plugins.protocol import PluginContext
from onyx.storage.interface import Location
from onyx.storage.staging.interface import PartStore, Writer


def parts_at(location: Location, context: PluginContext) -> PartStore:
    """The parts of a task in a location (see `options.located`).

    Raises:
        UserError: the id of the job, or the task's name, cannot be a part of a path.
    """
    return location.staging(writer_of(context))


def writer_of(context: PluginContext) -> Writer:
    """Who stages parts. Raises like `parts_at`."""
    name = f"{context.incarnation}.{context.writer}"
    return Writer(folder_name(context), context.incarnation, name, context.task, context.where)


def folder_name(context: PluginContext) -> str:
    """Name of a folder of a task of a job, where all jobs have theirs. Raises like `parts_at`."""
    job = path_name(context.job, "the id of a job")
    return f"{job}.{path_name(context.task, 'the name of a task')}"


def published(location: Location, suffix: str) -> list[str]:
    """Names of the visible parts of all writers, in a stable order."""
    names = (each.name for each in location.list(""))
    return [each for each in names if each.startswith("part-") and each.endswith(suffix)]
