"""Names of parts: `part-<task>--<job>--<slot>-<writer>-<number><suffix>`.

The names tell the versions of a job apart in a folder that all of them wrote to, which is why each
has the id of its job: after an upgrade that was taken back, only that says what is superseded. The
hyphens are doubled, because an id has hyphens itself, and `part-*--flights--*` must not select the
parts of `flights-2`, nor `part-*--1--*` those of slot 1. An id in folders (`job=<id>/`) was
rejected: a glob of one level would find nothing.

With the longest names of jobs and tasks a staged name has at most 255 bytes (`path_names`).
"""

from __future__ import annotations

import hashlib
import itertools
import re

from onyx.ids import JobId, TaskName
from onyx.plugins.protocol import PluginContext

PART = re.compile(
    r"part-(?P<writer>(?P<whose>.+)--\d+-[0-9a-f]{12})-(?P<number>\d{6,})(?P<suffix>\..+)"
)
_numbers = itertools.count()
"""Numbers of parts in this process: with the incarnation, it makes their names unique."""


def whose(task: TaskName | str, job: JobId | str) -> str:
    """What stands in a name for the task of a job."""
    return f"{task}--{job}"


def part_name(context: PluginContext, suffix: str) -> str:
    """A name that no other part ever has."""
    return f"part-{whose(context.task, context.job)}--{_unique(context)}{suffix}"


def bundle_part_name(context: PluginContext, suffix: str) -> str:
    """The name of a part below a folder of the task and the job, behind the name of a frame."""
    return f"part-{_unique(context)}{suffix}"


def run_name(context: PluginContext) -> str:
    """How the names of the files of one run of a stage begin. Spark adds numbers of its own, so
    that only a digest fits beside the longest names."""
    digest = hashlib.sha256(_unique(context).encode()).hexdigest()[:12]
    return f"part-{whose(context.task, context.job)}--{digest}"


def _unique(context: PluginContext) -> str:
    writer = hashlib.sha256(f"{context.incarnation}{context.writer}".encode()).hexdigest()[:12]
    return f"{context.slot}-{writer}-{next(_numbers):06d}"
