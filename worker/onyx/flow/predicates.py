"""Compile predicate expressions: a name, `(name, param key...)`, a comparison, or and / or / not of
these.

Compiled once a task into one Python function, so that a plain name costs nothing over calling it.
Writing the source of that function and compiling it was rejected: it saves some 50 ns an operator,
and text of a job would be near code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx.errors import UserError
from onyx.flow.comparisons import Comparison, comparison_of
from onyx.model.job import Predicate
from onyx.model.names import COMBINATORS, COMPARISONS

Resolve = Callable[[str], Callable[..., Any]]
"""`package.module:name` to the function."""

Test = Callable[[Any, Any, Any, Any], Any]
"""`test(event, old segment, new segment, all new segments)`, true or false by Python's rules."""


def compile_predicate(
    expression: Predicate, options: Mapping[str, Any], resolve: Resolve, where: str
) -> Test:
    """The function that an expression stands for.

    Args:
        expression: as in the manifest; param keys are looked up in `options`.
        options: `options` of the flow condition.
        where: names job, task and condition in errors.

    Comparisons are about the new segment; where that is an exception, about the old one, which is
    the segment that failed.

    Raises:
        UserError: wrong number of operands, or a param key that is not in `options`.
        NameNotRegistered: from `resolve`.
    """
    if isinstance(expression, str):
        if expression in COMBINATORS:
            raise UserError(f"{where}: {expression!r} needs operands, write [{expression}, ...]")
        return resolve(expression)
    if not expression:
        raise UserError(f"{where}: the predicate is empty: name a function")
    head, rest = expression[0], expression[1:]
    if head in COMPARISONS:
        return _compare(comparison_of(expression, where))
    if head in COMBINATORS:
        operands = [compile_predicate(each, options, resolve, where) for each in rest]
        return _combine(str(head), operands, where)
    if not isinstance(head, str):
        raise UserError(f"{where}: a predicate list starts with a function's name, and, or, not")
    return _with_params(resolve(head), [_param(key, options, where) for key in rest])


def _compare(comparison: Comparison) -> Test:
    answer, key = comparison.answer(), comparison.key
    return lambda event, old, new, all_new: answer((new if type(new) is dict else old).get(key))


def _param(key: Any, options: Mapping[str, Any], where: str) -> Any:
    if not isinstance(key, str) or key not in options:
        raise UserError(f"{where}: the predicate's parameter {key!r} is not under options: add it")
    return options[key]


def _with_params(fn: Callable[..., Any], params: list[Any]) -> Test:
    if not params:
        return fn
    if len(params) == 1:
        only = params[0]
        return lambda event, old, new, all_new: fn(event, old, new, all_new, only)
    return lambda event, old, new, all_new: fn(event, old, new, all_new, *params)


def _combine(operator: str, operands: list[Test], where: str) -> Test:
    if operator == "not":
        if len(operands) != 1:
            raise UserError(f"{where}: not takes one operand, here are {len(operands)}")
        only = operands[0]
        return lambda event, old, new, all_new: not only(event, old, new, all_new)
    if len(operands) < 2:
        raise UserError(f"{where}: {operator} takes two operands or more, here: {len(operands)}")
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
