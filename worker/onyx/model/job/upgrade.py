"""`spec.upgrade`: which job is upgraded, and which of its state is not carried over.

Onyx names a snapshot for each task and window: tenancy, job, replica version, epoch. Here the
newest state is carried over, so the old job's id is enough. Tasks and windows of the same name
carry their state over unless the manifest says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import field

from onyx.model.job.types import TaskName, WindowName
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import PathName, PlaceOf


class Upgrade(msgspec.Struct, frozen=True):
    """The job that this one upgrades. State of tasks and windows of the same name is carried
    over."""

    from_job: Annotated[
        str | None,
        PathName("the id of a job"),
        Key(
            yaml="from",
            restriction="Needed unless savepoint is given or upgradePolicy is KeepState: then the "
            "old job is the one of the object, whose first version upgrades none.",
        ),
    ] = None
    """Id of the old job. It is killed by the log entry that submits this one."""
    tasks: Annotated[
        Mapping[TaskName, Literal["carry-over", "initialize"]],
        Key(restriction="Inputs, outputs, and tasks with windows."),
    ] = field(default_factory=lambda: EMPTY)
    """`initialize`: the task starts without state. An input reads from the beginning, an output
    forgets what it has written, windows are empty. `carry-over`: the state is carried over even
    where in-flight segments may count twice."""
    windows: Annotated[
        Mapping[WindowName, Literal["initialize"]], Key(restriction="Windows of the job.")
    ] = field(default_factory=lambda: EMPTY)
    """`initialize`: the window starts empty."""
    savepoint: Annotated[
        str | None,
        PlaceOf("a savepoint"),
        Key(
            restriction="Not with from. With upgradePolicy KeepState only the first version of the "
            "object begins with it.",
        ),
    ] = None
    """A savepoint with which the job begins, as with an old job's state. Workers read it."""
