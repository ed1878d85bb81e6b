"""The kinds of operators. A new kind is a room beside this module, and a row here.

Nothing that runs a task asks for a kind: it has the definition in the program, and the operator
that is made of it here. The code of an operator is imported with the first task that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from onyx.base.on_demand import OnDemand
from onyx.flow.predicates import Resolve
from onyx.model.job import Job
from onyx.operators.context import OperatorContext
from onyx.operators.keyed.definition import KeyedFunction, keyed_function
from onyx.operators.processor.definition import Processing, processing
from onyx.operators.stream_join.definition import StreamJoin, stream_join
from onyx.operators.windowed.definition import Windowed, windowed
from onyx.program.operator import Operator
from onyx.program.program import Definition

Make = Callable[[Any, OperatorContext], Operator]
"""Makes an operator of its definition, with nothing in it yet. Raises UserFunctionError: code of
the user's, with which it begins, has raised."""


class OperatorKind(NamedTuple):
    """A kind of operator."""

    definition: type[Definition]
    define: Callable[[Job, str, Resolve], Definition | None]
    """Gives the definition of a task; None: the task is of another kind. Raises UserError: a
    function is not registered, or not of the right kind."""
    make: OnDemand[Make]


KINDS = (
    OperatorKind(
        Windowed, windowed, OnDemand("onyx.operators.windowed.operator:windowed_operator")
    ),
    OperatorKind(
        KeyedFunction, keyed_function, OnDemand("onyx.operators.keyed.operator:keyed_operator")
    ),
    OperatorKind(
        Processing, processing, OnDemand("onyx.operators.processor.operator:processor_operator")
    ),
    OperatorKind(
        StreamJoin, stream_join, OnDemand("onyx.operators.stream_join.operator:join_operator")
    ),
)


def definition_of(job: Job, task: str, resolve: Resolve) -> Definition | None:
    """The definition of the operator of a task; None when it keeps nothing.

    Raises:
        UserError: a function is not registered, or not of the right kind.
    """
    found = (kind.define(job, task, resolve) for kind in KINDS)
    return next((each for each in found if each is not None), None)


def operator_of(its: Definition, context: OperatorContext) -> Operator:
    """The operator of a task, with nothing in it yet.

    Raises:
        UserFunctionError: code of the user's, with which it begins, has raised.
    """
    (kind,) = (kind for kind in KINDS if kind.definition is type(its))
    return kind.make.load()(its, context)
