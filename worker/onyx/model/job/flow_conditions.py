"""Flow conditions of a job: which segments go to which children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from onyx.model.job.types import Targets
from onyx.model.keys import compound
from onyx.model.keys.compound import OneOrMore
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Count, Function, Name

RETRIES_MAX = 10_000

Predicate = str | tuple["Predicate | str", ...]
"""A name, `(name, param-key...)`, or `("and"|"or"|"not", predicate...)`."""


@dataclass(frozen=True, slots=True)
class FlowCondition:
    """When segments of a task go to which of its children. A task without conditions sends every
    segment to all of them."""

    from_task: Annotated[
        Targets,
        OneOrMore(Name("task", words=("all",))),
        Key(yaml="from", origin="flow/from", restriction="all stands alone."),
    ]
    """Task, or tasks, whose segments are decided on, or all."""
    to: Annotated[
        Targets,
        Key(
            origin="flow/to",
            restriction="Children of from. all comes first, none first or directly after all, "
            "and both need shortCircuit. Conditions that retry may stand anywhere "
            "among those with shortCircuit.",
        ),
    ]
    """Children to send to when the predicate holds."""
    predicate: Annotated[
        Predicate,
        compound.Predicate(),
        Key(origin="flow/predicate", restriction="Params must be in options."),
    ]
    """Function (event, old segment, new segment, all new segments, param...) to true or false,
    or a composition of such. Params are keys of options."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Whatever the predicate needs, by keys of your own."""
    predicate_errors_to: Annotated[
        Targets | None, Key(origin="flow/predicate-errors-to", era="0.10+")
    ] = None
    """Children that get an error of the predicate itself: what postTransform makes of it, or
    without that {error: {type, message}, segment}."""
    exclude_keys: Annotated[tuple[str, ...], Key(origin="flow/exclude-keys")] = ()
    """Keys that the children this condition sends to do not get; others do."""
    short_circuit: Annotated[
        bool,
        Key(
            origin="flow/short-circuit?",
            restriction="Such conditions come before all others of the same task.",
        ),
    ] = False
    """If the predicate holds, later conditions are not looked at."""
    thrown_exception: Annotated[
        bool, Key(origin="flow/thrown-exception?", restriction="Needs shortCircuit.")
    ] = False
    """The condition is for segments that fail, in fn, in a window of the task or because a
    child cannot be sent what was made of them; the predicate gets the exception."""
    post_transform: Annotated[
        str | None,
        Function(),
        Key(origin="flow/post-transform", restriction="Needs thrownException."),
    ] = None
    """Function (event, segment, exception) that makes a segment of an exception."""
    action: Annotated[
        Literal["retry"] | None,
        Key(
            origin="flow/action",
            restriction="Needs shortCircuit, and to: none; not for guarantee at-most-once.",
        ),
    ] = None
    """retry: nothing is sent; the root segment is read again from its input, after a pause that
    doubles each time."""
    max_retries: Annotated[
        int, Count(1, RETRIES_MAX, "retries"), Key(restriction="Needs action: retry.")
    ] = 10
    """Retries of a segment of the input, counted over all conditions, after which this one asks
    for no more. Then it fails: a later condition for exceptions may take it, or deadLetter;
    otherwise the job ends."""
    doc: Annotated[str, Key(origin="flow/doc")] = ""
    """Free text."""

    @property
    def from_tasks(self) -> tuple[str, ...]:
        """The tasks it is about, `("all",)` where it names none."""
        return (self.from_task,) if isinstance(self.from_task, str) else self.from_task
