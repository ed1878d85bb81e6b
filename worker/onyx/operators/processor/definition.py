"""What a task with a processor runs, worked out once from its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isclass
from typing import Any, NamedTuple

import pyarrow as pa

from onyx.base.on_demand import OnDemand
from onyx.errors import UserError, UserFunctionError
from onyx.flow.groups.getters import key_getter
from onyx.flow.predicates import Resolve
from onyx.model.job import Job
from onyx.model.workflow import begins_trees, ordered_parents, sources_above
from onyx.processors import Processor
from onyx.program.failure import blamed
from onyx.program.program import Definition, Needs


class Parent(NamedTuple):
    """A task that segments come from."""

    task: str
    sources: frozenset[str]
    """When these have ended, nothing more comes from it."""


class Processing(Definition, frozen=True, kw_only=True):
    """What a task with a processor runs. Its state is split by its own keys, whether segments are
    grouped or not."""

    make: Callable[..., Processor]
    name: str
    """The name of the class in the job."""
    parents: tuple[Parent, ...]
    """By ordinal."""

    words = "the processor"
    made_by = OnDemand("onyx.operators.processor.operator:processor_operator")

    def made(self, arguments: Sequence[Any]) -> Processor:
        """A new processor. Raises UserFunctionError: there is none."""
        try:
            return self.make(*arguments)
        except BaseException as error:
            raise UserFunctionError(blamed(f"processor {self.name}", error)) from error

    def group_of(self, item: Any) -> Any:
        """The group of a segment, or of a record batch of one row; None: there are no groups."""
        if self.group_key is None:
            return None
        segments = item.to_pylist() if isinstance(item, pa.RecordBatch) else [item]
        keys = self.group_key.of_dicts(segments)
        return (
            keys.raws[0] if keys.names is None else dict(zip(keys.names, keys.raws[0], strict=True))
        )

    def ordinal(self, task: str | None) -> int:
        """The number of a parent; None: there is one only."""
        return next((n for n, each in enumerate(self.parents) if each.task == task), 0)


def processing(job: Job, task: str, resolve: Resolve) -> Processing:
    """The processor of a task.

    Raises:
        UserError: the class is not registered, or is none.
    """
    entry = job.entry(task)
    assert entry.processor is not None, "the table looks before"
    make = resolve(entry.processor)
    if not (isclass(make) and issubclass(make, Processor)):
        raise UserError(f"{entry.processor} is no subclass of onyx.processors.Processor")
    return Processing(
        task=task,
        make=make,
        name=entry.processor,
        parents=tuple(
            Parent(each, frozenset({*sources_above(job, each), *_itself(job, each)}))
            for each in ordered_parents(job.workflow, task)
        ),
        fed_by=frozenset(sources_above(job, task)),
        group_key=key_getter(entry, resolve),
        needs=Needs(inbox=True, user_code_at_start=True),
        is_cooperative=make.is_cooperative,
    )


def _itself(job: Job, task: str) -> tuple[str, ...]:
    return (task,) if begins_trees(job, task) else ()
