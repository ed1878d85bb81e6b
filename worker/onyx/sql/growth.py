"""Functions of DuckDB that make much of little: a number is all that `range(1000000000)` needs.

The limit of memory of DuckDB does not hold for what a function makes. So a call of such a function
is replaced by a macro that looks at the number first, and fails for the row; and a text with one is
run on few rows at a time. Where the number is written and small, nothing is replaced. Within a
lambda, which is called for each value of a list, only such numbers are allowed.

What a lambda makes of a list by itself has no bound here: the time limit of a statement holds for
it, and a process that dies of memory names its segments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from onyx.sql.grammar import Node, Refused

MADE_MAX = 100_000
"""Values of a list, or characters of a text, that one call may make."""
SMALL_MAX = 100
"""A number up to which a call is as any other."""
ROWS_AT_ONCE = 16
"""Rows for which such calls are computed together."""
_PREFIX = "onyx_guarded_"
_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "range": (0, 1, 2),
    "generate_series": (0, 1, 2),
    "repeat": (1,),
    "lpad": (1,),
    "rpad": (1,),
    "list_resize": (1,),
    "array_resize": (1,),
}
"""By function, which of its arguments say how much it makes."""
_FORMATS = frozenset({"format", "printf"})
_WIDE = re.compile(r"\d{4}|\{[^}]*\{|\*")
"""A width of more than three digits, or one that is an argument."""


def _macros() -> str:
    """The macros, as statements."""
    within = "onyx_within"
    made = [
        f"CREATE MACRO {within}(made, given) AS CASE WHEN made > {MADE_MAX} THEN "
        f"error('a function makes more than {MADE_MAX} values or characters of a row') "
        "ELSE given END",
        "CREATE MACRO onyx_span(a, b) AS coalesce("
        "abs(try_cast(b::VARCHAR AS DOUBLE) - try_cast(a::VARCHAR AS DOUBLE)), "
        "abs(epoch(try_cast(b::VARCHAR AS TIMESTAMPTZ)) - "
        "epoch(try_cast(a::VARCHAR AS TIMESTAMPTZ))))",
        "CREATE MACRO onyx_step(s) AS nullif(coalesce(abs(try_cast(s::VARCHAR AS DOUBLE)), "
        "abs(epoch(try_cast(s::VARCHAR AS INTERVAL)))), 0)",
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(a) AS {name}({within}(abs(a::DOUBLE), a)), "
        f"(a, b) AS {name}(a, {within}(onyx_span(a, b), b)), "
        f"(a, b, s) AS {name}(a, {within}(onyx_span(a, b) / onyx_step(s), b), s)"
        for name in ("range", "generate_series")
    ]
    made += [
        f"CREATE MACRO {_PREFIX}repeat(x, n) AS "
        f"repeat(x, {within}(strlen(x::VARCHAR) * n::DOUBLE, n))"
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(x, n, p) AS {name}(x, {within}(n, n), p)"
        for name in ("lpad", "rpad")
    ]
    made += [
        f"CREATE MACRO {_PREFIX}{name}(x, n) AS {name}(x, {within}(n, n)), (x, n, v) AS "
        f"{name}(x, {within}(n * greatest(1, coalesce(strlen(v::VARCHAR), 1)), n), v)"
        for name in ("list_resize", "array_resize")
    ]
    return "; ".join(made)


MACROS = _macros()


class Guarded:
    """A tree of an expression, in which calls that may make much are replaced."""

    def __init__(self) -> None:
        self.makes_much = False
        """Whether there is such a call."""

    def tree(self, value: Any, in_lambda: bool = False) -> Any:
        """Replace the calls in a tree.

        Raises:
            Refused: what a call makes cannot be bounded.
        """
        # Without comprehensions, which would be two more calls for each of `DEPTH_MAX` levels, and
        # Python has a thousand of them.
        if isinstance(value, list):
            return list(map(partial(self.tree, in_lambda=in_lambda), value))
        if not isinstance(value, dict):
            return value
        inside = in_lambda or value.get("class") == "LAMBDA"
        node: dict[str, Any] = {}
        for key, each in value.items():
            node[key] = self.tree(each, inside)
        if value.get("class") == "FUNCTION":
            return self._call(node, in_lambda)
        return node

    def _call(self, node: dict[str, Any], in_lambda: bool) -> dict[str, Any]:
        name = node["function_name"].lower()
        given = [each["expression"] for each in node.get("arguments", ())]
        if name in _FORMATS and given and not _is_narrow(given[0]):
            raise Refused(
                f"has {name} with a width of more than 999, or one that is not written in the text"
            )
        numbers = _NUMBERS.get(name)
        if numbers is None or all(_is_small(each) for each in _chosen(given, numbers)):
            return node
        if in_lambda:
            raise Refused(
                f"has {name} in a lambda with a number above {SMALL_MAX}, or one that is computed: "
                "it would make as much for each value of a list"
            )
        self.makes_much = True
        guarded = f"{_PREFIX}{name}"
        return {**node, "function_name": guarded, "qualified_name": {"path": [guarded]}}


def _chosen(given: list[Node], numbers: tuple[int, ...]) -> list[Node]:
    return [given[at] for at in numbers if at < len(given)]


def _is_small(node: Node) -> bool:
    """Whether an argument is a number that is written in the text, and small."""
    literal = node.get("literal", {})
    text = str(literal.get("text", ""))
    return literal.get("kind") == "INTEGER" and text.isdecimal() and int(text) <= SMALL_MAX


def _is_narrow(node: Node) -> bool:
    literal = node.get("literal", {})
    return literal.get("kind") == "STRING" and not _WIDE.search(str(literal.get("text", "")))
