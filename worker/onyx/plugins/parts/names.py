"""Names of parts: `part-<task>--<job>--<slot>-<writer>-<number><suffix>`.

The names tell the versions of a job apart in a folder that all of them wrote to, which is why each
has the id of its job: after an upgrade that was taken back, only that says what is superseded. The
hyphens are doubled, because an id has hyphens itself, and `part-*--flights--*` must not select the
parts of `flights-2`, nor `part-*--1--*` those of slot 1. An id in folders (`job=<id>/`) was
rejected: a glob of one level would find nothing.

A writer numbers its parts from 0 without gaps, and publishes them in this order. Where a part was
begun and not published, another writer goes on. So whoever sees a part knows all of its writer that
were published before.

With the longest names of jobs and tasks a staged name has at most 255 bytes (`path_names`).
"""

from __future__ import annotations

import hashlib
import itertools
import re

from onyx.ids import JobId, TaskName
from onyx.plugins.protocol import PluginContext

PART = re.compile(
    r"part-(?P<writer>(?P<whose>.+)--\d+-[0-9a-f]{12,})-(?P<number>\d{6,})(?P<suffix>\..+)"
)
_numbers = itertools.count()
"""Numbers of this process: with the incarnation, they make names unique."""
_writers = itertools.count()
"""Writers of parts in this process."""
_PROCESS_DIGITS = 10


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
