"""The kinds of operators. A new kind is a room beside this module, and a row here.

Nothing that runs a task asks for a kind: it has the definition in the program, and the operator
that is made of it here. What a kind has is imported with the first task that is of it, before that
reads anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onyx.base.on_demand import OnDemand
from onyx.flow.predicates import Resolve
from onyx.model.job import CatalogEntry, Job
from onyx.operators.context import OperatorContext
from onyx.program.operator import Operator
from onyx.program.program import Definition

Make = Callable[[Any, OperatorContext], Operator]
"""Makes an operator of its definition, with nothing in it yet. Raises UserFunctionError: code of
the user's, with which it begins, has raised."""


class OperatorKind(NamedTuple):
    """A kind of operator."""

    has: Callable[[Job, CatalogEntry], bool]
    """Whether a task is of this kind."""
    define: OnDemand[Callable[[Job, str, Resolve], Definition | None]]
    """Gives the definition of such a task. Raises UserError: a function is not registered, or not
    of the right kind."""


KINDS = (
    OperatorKind(
        lambda job, entry: any(each.task == entry.name for each in job.windows),
        OnDemand("onyx.operators.windowed.definition:windowed"),
    ),
    OperatorKind(
        lambda _, entry: entry.state is not None,
        OnDemand("onyx.operators.keyed.definition:keyed_function"),
    ),
    OperatorKind(
        lambda _, entry: entry.processor is not None,
        OnDemand("onyx.operators.processor.definition:processing"),
    ),
    OperatorKind(
        lambda _, entry: entry.left is not None,
        OnDemand("onyx.operators.stream_join.definition:stream_join"),
    ),
)


def definition_of(job: Job, task: str, resolve: Resolve) -> Definition | None:
    """The definition of the operator of a task; None when it keeps nothing.

    Raises:
        UserError: a function is not registered, or not of the right kind.
    """
    entry = job.entry(task)
    kind = next((kind for kind in KINDS if kind.has(job, entry)), None)
    return None if kind is None else kind.define.load()(job, task, resolve)


def operator_of(its: Definition, context: OperatorContext) -> Operator:
    """The operator of a task, with nothing in it yet.

    Raises:
        UserFunctionError: code of the user's, with which it begins, has raised.
    """
    make: Make = its.made_by.load()
    return make(its, context)
