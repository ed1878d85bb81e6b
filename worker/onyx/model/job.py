"""A job as a value: what parsing gives, what the runtime reads, what is stored for the peers.

Frozen and typed; units are in the field's documentation in `information.py`, from which the CRD and
the reference pages are derived too. A test compares the fields here with that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

EMPTY: Mapping[str, Any] = MappingProxyType({})

Predicate = str | tuple["Predicate | str", ...]
"""A name, `(name, param-key...)`, or `("and"|"or"|"not", predicate...)`."""

Targets = str | tuple[str, ...]
"""`"all"`, `"none"`, or the names of child tasks."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One task of the job."""

    name: str
    type: str
    batch_size: int
    plugin: str | None = None
    fn: str | None = None
    params: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    medium: str | None = None
    batch_timeout: int = 0
    batch_fn: bool = False
    cooperative: bool | None = None
    min_peers: int | None = None
    max_peers: int | None = None
    n_peers: int | None = None
    group_by_key: str | tuple[str, ...] | None = None
    group_by_fn: str | None = None
    on_missing_key: str = "fail"
    dead_letter: str | None = None
    flux_policy: str | None = None
    required_tags: tuple[str, ...] = ()
    percentage: int | None = None
    max_pending: int = 10_000
    pending_timeout: int = 60_000
    input_retry_timeout: int = 1_000
    uniqueness_key: str | None = None
    deduplicate: bool = True
    assign_watermark_fn: str | None = None
    watermark_key: str | None = None
    allowed_disorder: tuple[int, str] = (0, "milliseconds")
    idle_timeout: int | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class FlowCondition:
    """When segments of `from_task` go to which of its children (`from` in the manifest)."""

    from_task: Targets
    to: Targets
    predicate: Predicate
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    predicate_errors_to: Targets | None = None
    exclude_keys: tuple[str, ...] = ()
    short_circuit: bool = False
    thrown_exception: bool = False
    post_transform: str | None = None
    action: str | None = None
    max_retries: int = 10
    doc: str = ""

    @property
    def from_tasks(self) -> tuple[str, ...]:
        """The tasks it is about, `("all",)` where it names none."""
        return (self.from_task,) if isinstance(self.from_task, str) else self.from_task


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Hooks around a task; `calls` names a function that returns `{hook name: function}`."""

    task: str
    calls: str
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the segments of a task."""

    id: str
    task: str
    type: str
    aggregation: str | tuple[str, ...]
    window_key: str | None = None
    min_value: int = 0
    session_key: str | None = None
    range: tuple[int, str] | None = None
    slide: tuple[int, str] | None = None
    init: Any = None
    timeout_gap: tuple[int, str] | None = None
    allowed_lateness: tuple[int, str] | None = None
    late_to: str | None = None
    storage_strategy: tuple[str, ...] = ("incremental",)
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a window fires and what is done then."""

    window_id: str
    type: str
    id: str | None = None
    refinement: str | None = None
    sync: str | None = None
    emit: str | None = None
    fire_all_extents: bool = False
    threshold: tuple[int, str] | None = None
    period: tuple[int, str] | None = None
    pred: str | None = None
    watermark_percentage: float | None = None
    delay: tuple[int, str] | None = None
    state_context: tuple[str, ...] = ("trigger-state",)
    post_evictor: tuple[str, ...] = ("none",)
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    doc: str = ""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The job in whose place a job comes, and what of that is carried over (`onyx.upgrade`)."""

    job: str | None = None
    """None where that is said by whoever submits: these are answers for then."""
    tasks: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    windows: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Job:
    """A whole job, valid by construction: `parse_manifest` is the way to make one."""

    name: str
    workflow: tuple[tuple[str, str], ...]
    catalog: tuple[CatalogEntry, ...]
    task_scheduler: str = "balanced"
    guarantee: str = "at-least-once"
    flow_conditions: tuple[FlowCondition, ...] = ()
    lifecycles: tuple[Lifecycle, ...] = ()
    windows: tuple[Window, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    resume_point: ResumePoint | None = None
    percentage: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    acker_percentage: int = 1
    acker_exempt_input_tasks: bool = False
    acker_exempt_output_tasks: bool = False
    acker_exempt_tasks: tuple[str, ...] = ()

    def entry(self, task: str) -> CatalogEntry:
        """The catalog entry of `task`; KeyError when there is none."""
        for entry in self.catalog:
            if entry.name == task:
                return entry
        raise KeyError(task)
