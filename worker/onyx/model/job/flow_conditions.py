"""Flow conditions of a job: which segments go to which children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.functions.retry import RETRIES_DEFAULT, RETRIES_MAX
from onyx.model.job.types import Targets
from onyx.model.keys.compound import OneOrMore
from onyx.model.keys.key import EMPTY, Key
from onyx.model.keys.kinds import Function, Integer, PartName
from onyx.model.keys.predicate import Predicate as PredicateKind

Predicate = str | tuple[Any, ...]
"""A name, `(name, param-key...)`, a comparison as `(">", key, value)`, `("in", key, values)` or
`("is-null", key)`, `("sql", expression)`, or `("and"|"or"|"not", predicate...)`."""


class FlowCondition(msgspec.Struct, frozen=True):
    """Which segments of a task go to which of its children. A task without flow conditions sends
    every segment to every child."""

    from_task: Annotated[
        Targets,
        OneOrMore(PartName("task", words=("all",))),
        Key(yaml="from", origin="flow/from", restriction="all stands alone."),
    ]
    """Task or tasks whose segments the condition is about, or `all`."""
    to: Annotated[
        Targets,
        Key(
            origin="flow/to",
            restriction="Children of from. all comes first, none first or directly after all, "
            "and both need shortCircuit. Conditions that retry may stand anywhere "
            "among those with shortCircuit.",
        ),
    ]
    """Children that get the segment if the predicate holds."""
    predicate: Annotated[
        Predicate,
        PredicateKind(),
        Key(origin="flow/predicate", restriction="Params must be in options."),
    ]
    """A function of (event, old segment, new segment, all new segments, param...) that returns true
    or false; params are keys of options. Or a comparison of a key of the new segment with a value,
    which needs no function: `[">", key, value]`, `>=`, `<`, `<=`, `==`, `!=`,
    `["in", key, [value, ...]]`, `["is-null", key]`. Or SQL about the new segment,
    `["sql", "km / hours > 50"]`, where null is false. Or a combination of these. A comparison with
    a null, or of a key that is not there, is false, so that `!=`, the opposite of `==`, holds."""
    batch_format: Annotated[
        Literal["dicts", "arrow"],
        Key(restriction="Not with thrownException. Only if the predicate names functions."),
    ] = "dicts"
    """What the functions of the predicate get. `arrow`: the segments that the task has made of a
    batch, as fn(event, record_batch, param...), of which a boolean array of the same length comes
    back; null is false."""
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Values of the params, by keys of your own."""
    predicate_errors_to: Annotated[
        Targets | None, Key(origin="flow/predicate-errors-to", era="0.10+")
    ] = None
    """Children that get a segment about an error that the predicate raises: the result of
    postTransform, or without it {error: {type, message}, segment}."""
    exclude_keys: Annotated[
        tuple[str, ...],
        Key(
            origin="flow/exclude-keys",
            restriction="Not with to: none, unless predicateErrorsTo is given.",
        ),
    ] = ()
    """Keys that are removed from segments which this condition sends."""
    short_circuit: Annotated[
        bool,
        Key(
            origin="flow/short-circuit?",
            restriction="Such conditions come before all others of the same task.",
        ),
    ] = False
    """If the predicate holds, no later condition is evaluated."""
    thrown_exception: Annotated[
        bool, Key(origin="flow/thrown-exception?", restriction="Needs shortCircuit.")
    ] = False
    """The condition is for segments that fail: in fn, in a window of the task, or because the
    result cannot be sent. The predicate gets the exception."""
    post_transform: Annotated[
        str | None,
        Function(),
        Key(origin="flow/post-transform", restriction="Needs thrownException."),
    ] = None
    """Function of (event, segment, exception) that returns the segment to send."""
    anchored: Annotated[
        bool,
        Key(
            restriction="false only in a job with guarantee: at-least-once, without "
            "thrownException and with something in to."
        ),
    ] = True
    """false: what this condition sends is not accounted for, and travels at most once. A segment
    that another condition sends to the same child is accounted for there."""
    action: Annotated[
        Literal["retry"] | None,
        Key(
            origin="flow/action",
            restriction="Needs shortCircuit, and to: none; not for guarantee at-most-once.",
        ),
    ] = None
    """`retry`: nothing is sent; the input reads the root segment again, after a delay that doubles
    with each retry."""
    max_retries: Annotated[
        int, Integer(1, RETRIES_MAX, "retries"), Key(restriction="Needs action: retry.")
    ] = RETRIES_DEFAULT
    """Most retries of a segment of the input, over all conditions and functions. After that the
    segment fails: a later condition for exceptions may take it, or deadLetter; otherwise the job is
    killed."""
    doc: Annotated[str, Key(origin="flow/doc")] = ""
    """Free text."""

    @property
    def from_tasks(self) -> tuple[str, ...]:
        """The tasks it is about, `("all",)` where it names none."""
        return (self.from_task,) if isinstance(self.from_task, str) else self.from_task
