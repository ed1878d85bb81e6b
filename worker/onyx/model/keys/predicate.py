"""Predicates of flow conditions: named functions, comparisons, and combinations of these.

A comparison is checked here as far as its form goes: its operands and their types. What it means is
in `flow/comparisons`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.model import names
from onyx.model.keys.compound import ListOf
from onyx.model.keys.kinds import ANYTHING, Function, KeyKind, Schema, Text, refuse
from onyx.model.report import INVALID, Report, at, nearest, show

PREDICATE_DEPTH_MAX = 16
EXPRESSION_CHARACTERS_MAX = 8_192
IN_VALUES_MAX = 1_000
"""Values in the list of an `in`."""
_MEANT = {
    "=": "==", "===": "==", "eq": "==", "=>": ">=", "gt": ">", "gte": ">=", "ge": ">=",
    "=<": "<=", "lt": "<", "lte": "<=", "le": "<=", "<>": "!=", "ne": "!=",
    "&&": "and", "||": "or", "!": "not", "null": "is-null",
}  # fmt: skip
_FORMS = {"in": '["in", key, [value, ...]]', "is-null": '["is-null", key]'}


class Predicate(KeyKind, frozen=True):
    """A function, `[function, param-key...]`, a comparison, or `[and | or | not, predicate...]`."""

    def _read(self, value: Any, path: str, report: Report) -> Any:
        return self._at_depth(value, path, report, 0)

    def _at_depth(self, value: Any, path: str, report: Report, depth: int) -> Any:
        if depth > PREDICATE_DEPTH_MAX:
            report.add(path, f"is a predicate more than {PREDICATE_DEPTH_MAX} levels deep")
            return INVALID
        if not isinstance(value, list):
            return Function().read(value, path, report)
        if not value:
            return refuse(self, value, path, report)
        head = value[0]
        if head in names.COMBINATORS:
            return self._combined(value, path, report, depth)
        if head in names.COMPARISONS:
            return _comparison(value, path, report)
        if head == names.SQL:
            return _sql(value, path, report)
        if isinstance(head, str) and not names.is_function(head):
            return _refuse_head(head, at(path, 0), report)
        read = [Function().read(head, at(path, 0), report)]
        read += [Text().read(each, at(path, i), report) for i, each in enumerate(value) if i]
        return INVALID if INVALID in read else tuple(read)

    def _combined(self, value: list[Any], path: str, report: Report, depth: int) -> Any:
        head, count = value[0], len(value) - 1
        if count != 1 if head == "not" else count < 2:
            wanted = "exactly one predicate" if head == "not" else "at least two predicates"
            report.add(path, f"{head} takes {wanted}, not {count}")
            return INVALID
        parts = [
            self._at_depth(each, at(path, i), report, depth + 1)
            for i, each in enumerate(value)
            if i
        ]
        return INVALID if INVALID in parts else (head, *parts)

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        return (
            'a predicate: a function, [function, param...], a comparison as [">", key, value], '
            '["sql", expression], or [and, ...], [or, ...], [not, ...]'
        )


def _refuse_head(head: str, path: str, report: Report) -> Any:
    operators = (*names.COMPARISONS, *names.COMBINATORS, names.SQL)
    meant = _MEANT.get(head.lower()) or next(
        (each for each in operators if each == head.lower()), ""
    )
    words = [each for each in operators if each[0].isalpha()]
    hint = f"did you mean {meant}?" if meant else nearest(head, words) if head[:1].isalpha() else ""
    known = (
        f"a comparison ({' '.join(names.COMPARISONS)}) or one of sql {' '.join(names.COMBINATORS)}"
    )
    report.add(path, f"is {show(head)}, but must be {Function().describe()}, {known}", hint)
    return INVALID


def _comparison(value: list[Any], path: str, report: Report) -> Any:
    head, operands = value[0], value[1:]
    wanted = 1 if head == "is-null" else 2
    if len(operands) != wanted:
        form = _FORMS.get(head, f'["{head}", key, value]')
        report.add(path, f"has {len(operands)} operands, but {head} is written {form}")
        return INVALID
    read = [Text().read(operands[0], at(path, 1), report)]
    if head == "in":
        read.append(ListOf(_Value(), 1, IN_VALUES_MAX).read(operands[1], at(path, 2), report))
    elif head != "is-null":
        read.append(_Value(head not in ("==", "!=")).read(operands[1], at(path, 2), report))
    return INVALID if INVALID in read else (head, *read)


def _sql(value: list[Any], path: str, report: Report) -> Any:
    if len(value) != 2:
        what = f'has {len(value) - 1} operands, but sql is written ["sql", "an expression"]'
        report.add(path, what)
        return INVALID
    text = Text(characters_max=EXPRESSION_CHARACTERS_MAX).read(value[1], at(path, 1), report)
    return INVALID if text is INVALID else (names.SQL, text)


class _Value(KeyKind, frozen=True):
    """What the value of a key is compared with."""

    ordered: bool = False

    def _fits(self, value: Any) -> bool:
        if isinstance(value, bool):
            return not self.ordered
        return isinstance(value, str | int | float)

    def _hint(self, value: Any) -> str:
        if value is None:
            return 'a comparison with null is false; write ["is-null", key]'
        if isinstance(value, list):
            return 'several values: ["in", key, [value, ...]]'
        return ""

    def _schema(self) -> Schema:
        return dict(ANYTHING)

    def _describe(self) -> str:
        return "text or a number" + (", which have an order" if self.ordered else ", true or false")


def has_function(predicate: Any) -> bool:
    """Whether a predicate calls a function, and does not only compare."""
    if isinstance(predicate, str):
        return True
    head, *rest = predicate
    if head in names.COMBINATORS:
        return any(map(has_function, rest))
    return head not in (*names.COMPARISONS, names.SQL)


def has_sql(predicate: Any) -> bool:
    """Whether there is SQL in a predicate."""
    return next(expressions(predicate, ""), None) is not None


def expressions(predicate: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, text) for each expression of SQL in a predicate at a path."""
    if isinstance(predicate, str):
        return
    head, *rest = predicate
    if head == names.SQL:
        yield at(path, 1), rest[0]
    elif head in names.COMBINATORS:
        for index, part in enumerate(rest, 1):
            yield from expressions(part, at(path, index))
