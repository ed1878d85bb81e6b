"""What a job carries over from the job that it upgrades.

The original names for each task and window a snapshot: tenancy, job, replica version, epoch. Here
state is the newest there is, so the job is enough, and what has the same name is carried over
unless something is said of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from onyx.model.job.types import TaskName, WindowName
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import PathName

Mode = Literal["resume", "initialize"]


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """From where a job goes on. Tasks and windows of the same name are carried over."""

    job: Annotated[
        str | None,
        PathName("the id of a job"),
        Key(
            restriction="Needed unless upgradePolicy is Resume: then the job before is meant, "
            "and what the resume point says is ignored for a job that has none "
            "before it."
        ),
    ] = None
    """Id of the other job. It is killed in the moment in which this begins."""
    tasks: Annotated[
        Mapping[TaskName, Mode], Key(restriction="Inputs, outputs, and tasks with windows.")
    ] = field(default_factory=lambda: EMPTY)
    """initialize: the task begins anew. An input reads from the beginning, an output forgets
    what it has written, a task with windows has empty ones. resume: it is carried over, even
    where segments in flight may count twice."""
    windows: Annotated[Mapping[WindowName, Mode], Key(restriction="Windows of the job.")] = field(
        default_factory=lambda: EMPTY
    )
    """initialize: the window begins empty."""
