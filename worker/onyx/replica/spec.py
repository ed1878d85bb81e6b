"""What scheduling must know of a job: the part of its submission that every replica keeps.

The rest of the job (functions, options, windows, conditions) is a chunk beside the log, under
`digest`: the entry stays small whatever the job has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct

from onyx.base.path_names import CHARACTERS_MAX, PATH_NAME
from onyx.base.structs import prepared
from onyx.ids import JobId, TaskName
from onyx.model.limits import NOTHING_DECLARED
from onyx.model.names import NAME

SPARK_TAG = "spark"
"""Tag of the peers of workers that can run Spark; whatever runs there requires it."""
TASKS_MAX = 10_000
OWNER_CHARACTERS_MAX = 1_024
WORD_CHARACTERS_MAX = 256

Job = Annotated[JobId, Meta(max_length=CHARACTERS_MAX, pattern=rf"\A({PATH_NAME})\Z")]
Task = Annotated[TaskName, Meta(max_length=63, pattern=rf"\A({NAME})\Z")]
Digest = Annotated[str, Meta(max_length=CHARACTERS_MAX, pattern=rf"\A({PATH_NAME})?\Z")]
"""Digest of a document in the chunk store; empty when there is none."""
Fingerprint = Annotated[str, Meta(max_length=64, pattern=r"\A[a-z0-9]*\Z")]
"""Short text for what a manifest gives of the keys that may change while a job runs."""
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Percent = Annotated[int, Meta(ge=0, le=100)]
_Word = Annotated[str, Meta(max_length=WORD_CHARACTERS_MAX)]
METADATA_MAX = 16
"""Keys of metadata that are said with what happens to a job."""
Metadata = Annotated[dict[_Word, _Word | int | float | bool], Meta(max_length=METADATA_MAX)]


@prepared
class TaskSpec(Struct, frozen=True, rename="kebab", omit_defaults=True):
    """One task of a job."""

    name: Task
    input: bool = False
    output: bool = False
    windowed: bool = False
    """Whether its windows begin trees of their own, as inputs do."""
    min_peers: Count = 1
    max_peers: Count | None = None
    """None for no limit."""
    percentage: Percent | None = None
    """Share of the job's peers; read by the task scheduler `percentage`."""
    flux_policy: _Word | None = None
    required_tags: Annotated[tuple[_Word, ...], Meta(max_length=1_000)] = ()
    acker_exempt: bool = False
    fed_by: Annotated[tuple[Task, ...], Meta(max_length=TASKS_MAX)] = ()
    """The sources of a task that is input and output at once, in the middle of a job: the sources
    upstream of it. When they have ended it is sealed, and ends as a source when all it gave is
    complete."""


@prepared
class JobSpec(Struct, frozen=True, rename="kebab", omit_defaults=True, dict=True):
    """One job.

    Raises:
        ValueError: it has no tasks, too many, or two of one name.
    """

    tasks: tuple[TaskSpec, ...]
    """Parents before children."""
    task_scheduler: _Word
    max_peers: Count | None = None
    """Most peers of the whole job; None for no limit."""
    percentage: Percent | None = None
    """Share of the cluster's peers; read by the job scheduler `percentage`."""
    priority: Count = 0
    """Jobs of a higher one are served first."""
    acker_percentage: Percent | None = None
    ackers: Count | None = None
    """How many peers are ackers, instead of a percentage of them."""
    acker_exclude_inputs: bool = False
    acker_exclude_outputs: bool = False
    stateful: bool = False
    """Whether the job keeps state logs, which go when it is complete or forgotten."""
    followed: bool = False
    """Whether others may follow a journal of the job: then these go only when it is forgotten."""
    digest: Digest = ""
    """Content address of the job itself, in the chunk store."""
    options: Fingerprint = NOTHING_DECLARED
    """What its manifest gives of the keys that may change while it runs."""
    upgrades: Job | None = None
    """The old job, whose state this one carries over and which it ends."""
    owner: Annotated[str, Meta(max_length=OWNER_CHARACTERS_MAX)] = ""
    """The object that declares the job and ends it, in words of its own; empty if there is none."""
    name: _Word = ""
    """The name in its manifest, for whoever reads of it and has no manifest."""
    metadata: Metadata = {}
    """What the manifest says besides, likewise: the first keys, as far as values are short."""

    def __post_init__(self) -> None:
        if not 0 < len(self.tasks) <= TASKS_MAX or len(self.by_name) < len(self.tasks):
            raise ValueError(f"a job has 1 to {TASKS_MAX} tasks, each with a name of its own")

    @cached_property
    def said(self) -> Mapping[str, str | int | float | bool]:
        """Name and metadata, as events and lines of logs have them."""
        more = {f"metadata.{key}": value for key, value in self.metadata.items()}
        return ({"job_name": self.name} if self.name else {}) | more

    @cached_property
    def by_name(self) -> Mapping[TaskName, TaskSpec]:
        """All tasks, parents before children."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def inputs(self) -> tuple[TaskName, ...]:
        """Tasks that read a source."""
        return tuple(task.name for task in self.tasks if task.input)

    @cached_property
    def outputs(self) -> tuple[TaskName, ...]:
        """Tasks that are sealed at the end."""
        return tuple(task.name for task in self.tasks if task.output)

    @cached_property
    def in_the_middle(self) -> tuple[TaskName, ...]:
        """Tasks that are sealed before the end of the job, because others wait for what they
        give."""
        return tuple(task.name for task in self.tasks if task.fed_by)

    @cached_property
    def windowed(self) -> tuple[TaskName, ...]:
        """Tasks whose windows begin trees and end after their parents."""
        return tuple(task.name for task in self.tasks if task.windowed)

    @cached_property
    def sources(self) -> tuple[TaskName, ...]:
        """Tasks with partitions, at which trees begin: inputs, then windowed tasks."""
        return self.inputs + self.windowed
