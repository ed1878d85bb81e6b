"""The information model of a job that comes in the place of another one.

The original names for each task and window a snapshot: tenancy, job, replica version, epoch. Here
state is the newest there is, so the job is enough, and what has the same name is carried over
unless something is said of it.
"""

from __future__ import annotations

from onyx.model.job import EMPTY, ResumePoint
from onyx.model.keys.compound import MapOf
from onyx.model.keys.kinds import Choice, Name, PathName
from onyx.model.keys.section import Key, Section

_MODE = Choice(("resume", "initialize"))

RESUME_POINT = Section(
    "resume point",
    "From where a job goes on. Tasks and windows of the same name are carried over.",
    (
        Key(
            "job", PathName("the id of a job"),
            "Id of the other job. It is killed in the moment in which this begins.",
            era="ours",
            restriction="Needed unless upgradePolicy is Resume: then the job before is meant, and "
            "what the resume point says is ignored for a job that has none before it.",
        ),
        Key(
            "tasks", MapOf(Name("task"), _MODE),
            "initialize: the task begins anew. An input reads from the beginning, an output "
            "forgets what it has written, a task with windows has empty ones. resume: it is "
            "carried over, even where segments in flight may count twice.",
            default=EMPTY, era="ours",
            restriction="Inputs, outputs, and tasks with windows.",
        ),
        Key(
            "windows", MapOf(Name("window"), _MODE),
            "initialize: the window begins empty.",
            default=EMPTY, era="ours", restriction="Windows of the job.",
        ),
    ),
    ResumePoint,
)  # fmt: skip
