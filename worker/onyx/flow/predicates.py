"""Predicate expressions: a name, `(name, param key...)`, a comparison, or and / or / not of these.

Read once a task into a tree, of which `segment_test` makes one Python function for a segment, so
that a plain name costs nothing over calling it; `conditions` makes one for the columns of a batch.
Writing the source of that function and compiling it was rejected: it saves some 50 ns an operator,
and text of a job would be near code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.errors import UserError
from onyx.flow.comparisons import Comparison, comparison_of
from onyx.model.job import Predicate
from onyx.model.names import COMBINATORS, COMPARISONS, SQL

if TYPE_CHECKING:
    from onyx.sql.batches import Expression

_EXPRESSION: OnDemand[type[Expression]] = OnDemand("onyx.sql.batches:Expression")

Resolve = Callable[[str], Callable[..., Any]]
"""`package.module:name` to the function."""

Test = Callable[[Any, Any, Any, Any], Any]
"""`test(event, old segment, new segment, all new segments)`, true or false by Python's rules."""


class Call(msgspec.Struct, frozen=True):
    """A function with its params."""

    fn: Callable[..., Any]
    params: tuple[Any, ...] = ()


class Combination(msgspec.Struct, frozen=True):
    """and, or, not of others."""

    operator: str
    operands: tuple[Node, ...]


Node: TypeAlias = "Call | Comparison | Combination | Expression"


def read(expression: Predicate, options: Mapping[str, Any], resolve: Resolve, where: str) -> Node:
    """What an expression stands for.

    Args:
        expression: as in the manifest; param keys are looked up in `options`.
        options: `options` of the flow condition.
        where: names job, task and condition in errors.

    Raises:
        UserError: wrong number of operands, or a param key that is not in `options`.
        NameNotRegistered: from `resolve`.
    """
    if isinstance(expression, str):
        if expression in COMBINATORS:
            raise UserError(f"{where}: {expression!r} needs operands, write [{expression}, ...]")
        return Call(resolve(expression))
    if not expression:
        raise UserError(f"{where}: the predicate is empty: name a function")
    head, rest = expression[0], expression[1:]
    if head in COMPARISONS:
        return comparison_of(expression, where)
    if head == SQL:
        return _expression(rest, where)
    if head in COMBINATORS:
        _check_operands(head, len(rest), where)
        return Combination(head, tuple(read(each, options, resolve, where) for each in rest))
    if not isinstance(head, str):
        raise UserError(f"{where}: a predicate list starts with a function's name, and, or, not")
    return Call(resolve(head), tuple(_param(key, options, where) for key in rest))


def calls_functions(node: Node) -> bool:
    """Whether there is a function in it."""
    if isinstance(node, Combination):
        return any(map(calls_functions, node.operands))
    return isinstance(node, Call)


def has_sql(node: Node) -> bool:
    """Whether there is SQL in it, which is about columns."""
    if isinstance(node, Combination):
        return any(map(has_sql, node.operands))
    return not isinstance(node, Call | Comparison)


def compared(node: Node) -> tuple[str, ...]:
    """The keys of the comparisons in it, each once."""
    if isinstance(node, Combination):
        return tuple(dict.fromkeys(key for each in node.operands for key in compared(each)))
    return (node.key,) if isinstance(node, Comparison) else ()


def segment_test(node: Node) -> Test:
    """The function that decides about one segment.

    Comparisons are about the new segment; where that is an exception, about the old one, which is
    the segment that failed. SQL is about columns (`conditions.one_by_one`).
    """
    if isinstance(node, Call):
        return _with_params(node.fn, node.params)
    if isinstance(node, Comparison):
        answer, key = node.answer(), node.key
        return lambda event, old, new, all_new: answer((new if type(new) is dict else old).get(key))
    assert isinstance(node, Combination), "SQL is about columns"
    return _combine(node.operator, [segment_test(each) for each in node.operands])


def _expression(operands: Sequence[Any], where: str) -> Expression:
    if len(operands) != 1 or not isinstance(operands[0], str):
        raise UserError(f'{where}: sql takes one operand: ["sql", "an expression"]')
    try:
        return _EXPRESSION.load()(operands[0])
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _param(key: Any, options: Mapping[str, Any], where: str) -> Any:
    if not isinstance(key, str) or key not in options:
        raise UserError(f"{where}: the predicate's parameter {key!r} is not under options: add it")
    return options[key]


def _check_operands(operator: str, count: int, where: str) -> None:
    if operator == "not" and count != 1:
        raise UserError(f"{where}: not takes one operand, here are {count}")
    if operator != "not" and count < 2:
        raise UserError(f"{where}: {operator} takes two operands or more, here: {count}")


def _with_params(fn: Callable[..., Any], params: tuple[Any, ...]) -> Test:
    if not params:
        return fn
    if len(params) == 1:
        only = params[0]
        return lambda event, old, new, all_new: fn(event, old, new, all_new, only)
    return lambda event, old, new, all_new: fn(event, old, new, all_new, *params)


def _combine(operator: str, operands: Sequence[Test]) -> Test:
    if operator == "not":
        only = operands[0]
        return lambda event, old, new, all_new: not only(event, old, new, all_new)
    if len(operands) == 2:
        a, b = operands
        if operator == "and":
            return lambda event, old, new, all_new: (
                a(event, old, new, all_new) and b(event, old, new, all_new)
            )
        return lambda event, old, new, all_new: (
            a(event, old, new, all_new) or b(event, old, new, all_new)
        )
    quantifier = all if operator == "and" else any
    return lambda event, old, new, all_new: quantifier(
        operand(event, old, new, all_new) for operand in operands
    )
