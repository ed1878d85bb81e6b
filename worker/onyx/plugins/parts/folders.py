"""The parts of a task in a folder or a bucket: where they are staged, how they are called, and
which are published.

    part-<task>--<job>--<slot>-<writer>-<number><suffix>

The names tell the versions of a job apart in a folder that all of them wrote to, which is why each
has the id of its job: after an upgrade that was taken back, only that says what is superseded. The
hyphens are doubled, because an id has hyphens itself, and `part-*--flights--*` must not select the
parts of `flights-2`, nor `part-*--1--*` those of slot 1. An id in folders (`job=<id>/`) was
rejected: a glob of one level would find nothing.

A writer numbers its parts from 0 without gaps, and publishes them in this order. Where a part was
begun and not published, another writer goes on. So whoever sees a part knows all of its writer that
were published before. Staged parts lie in folders below and have other names, so a listing never
has one.

With the longest names of jobs and tasks a staged name has at most 255 bytes (`path_names`).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator

from onyx.base.path_names import path_name
from onyx.errors import UserError
from onyx.ids import JobId, TaskName
from onyx.plugins.parts.offsets import Part
from onyx.plugins.protocol import PluginContext
from onyx.storage.interface import Location
from onyx.storage.opening import location_of
from onyx.storage.staging.interface import PartStore, Writer

PART = re.compile(
    r"part-(?P<writer>(?P<whose>.+)--\d+-[0-9a-f]{12,})-(?P<number>\d{6,})(?P<suffix>\..+)"
)
_numbers = itertools.count()
"""Numbers of this process: with the incarnation, they make names unique."""
_writers = itertools.count()
"""Writers of parts in this process."""
_PROCESS_DIGITS = 10
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz")


def whose(task: TaskName | str, job: JobId | str) -> str:
    """What stands in a name for the task of a job."""
    return f"{task}--{job}"


class PartNames:
    """The names of the parts of one writer, which no other part ever has."""

    def __init__(self, context: PluginContext, suffix: str) -> None:
        process = _digest(f"{context.incarnation}{context.writer}")[:_PROCESS_DIGITS]
        writer = f"{context.slot}-{process}{next(_writers):02x}"
        self._begin = f"part-{whose(context.task, context.job)}--{writer}"
        self._suffix = suffix
        self._number = 0

    @property
    def next(self) -> str:
        """The name of the next part."""
        return f"{self._begin}-{self._number:06d}{self._suffix}"

    def used(self) -> None:
        """There is a part of this name."""
        self._number += 1


def bundle_part_name(context: PluginContext, suffix: str) -> str:
    """The name of a part below a folder of the task and the job, behind the name of a frame."""
    return f"part-{_unique(context)}{suffix}"


def run_name(context: PluginContext) -> str:
    """How the names of the files of one run of a stage begin. Spark adds numbers of its own, so
    that only a digest fits beside the longest names."""
    digest = _digest(_unique(context))
    return f"part-{whose(context.task, context.job)}--{digest}"


def _unique(context: PluginContext) -> str:
    writer = _digest(f"{context.incarnation}{context.writer}")
    return f"{context.slot}-{writer}-{next(_numbers):06d}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class NotThere(UserError):
    """A folder does not exist, where this process runs."""


def parts_in(folder: str, wanted: Callable[[str], bool], name: str) -> Iterator[Part]:
    """The parts of a folder, in no order.

    Args:
        folder: absolute, or a URL.
        wanted: whether the parts of a task and a job are (`names.whose`).
        name: of the output, for messages.

    Raises:
        NotThere: the folder does not exist here.
        UserError: it cannot be listed.
        Unavailable: the object store does not answer.
    """
    for file, path, size_bytes in files_in(folder, name):
        found = PART.fullmatch(file)
        if found and found["suffix"] in SUFFIXES and wanted(found["whose"]):
            yield _part(found, path, size_bytes)


def part_of(folder: str, file: str) -> Part:
    """The part of a name in a folder, whether it is there or not."""
    found = PART.fullmatch(file)
    assert found, file
    return _part(found, f"{location_of(folder)}/{file}", 0)


def _part(found: re.Match[str], path: str, size_bytes: int) -> Part:
    return Part(path, found["writer"], int(found["number"]), size_bytes)


def files_in(folder: str, name: str) -> Iterator[tuple[str, str, int]]:
    """Name, path and size of what is in a folder; folders have a slash at the end. Raises like
    `parts_in`."""
    at = location_of(folder)
    entries = at.entries()
    if entries is None:
        raise NotThere(
            f"{name}: {folder} is not there: nothing has been written yet, or this machine "
            "does not see the volume of the workers"
        )
    for each in entries:
        file = f"{each.name}/" if each.is_folder else each.name
        yield file, f"{at}/{each.name}", each.size_bytes


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
