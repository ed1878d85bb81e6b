"""Functions from the words in which the cases describe them.

A small grammar, so that a case whose function nobody has written down here still runs: arithmetic
over the fields of a segment and parameters (`(k, segment) -> n+k`, `n*3`), what is returned
(`returns nil`, `returns two copies`), text (`upper case`, `appends !`), conditions before and after
an action (`odd n -> []`, `raises if n is odd`, `n = 5: raises; else unchanged`).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Segment = dict[str, Any]
Action = Callable[[Mapping[str, Any], Segment], Any]
"""(parameters by name, segment) -> result."""
Test = Callable[[Segment], bool]


class Unknown(ValueError):
    """The grammar does not have these words."""


class Raised(Exception):
    """What a described function raises; `data` if the words tell some."""

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.data = dict(data or {})


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_NUMBERS = {"two": 2, "three": 3, "four": 4, "twice": 2}


def function(words: str, params: Sequence[str] = ()) -> Callable[..., Any]:
    """A function of a segment, its parameters before it, as `onyx/fn` has them.

    Raises:
        Unknown: the words say something else.
    """
    words = words.strip().rstrip(".")
    if found := re.fullmatch(r"\(([^)]*)\)\s*(?:->|:)\s*(.+)", words):
        params = [each.strip() for each in found[1].split(",")][:-1]
        words = found[2]
    act = action(words)

    def fn(*arguments: Any) -> Any:
        *values, segment = arguments
        return act(dict(zip(params or _names(len(values)), values, strict=True)), segment)

    return fn


def predicate(words: str) -> Callable[..., bool]:
    """A predicate of flow conditions: (event, old, new, all_new, *parameters)."""
    found = re.fullmatch(r"(?:(?:true|yes) (?:when|if) )?(?:the )?(old|new)?\.?(.+)", words.strip())
    assert found is not None
    which, rest = found[1] or "new", found[2].strip()
    if rest in ("always true", "always false"):
        return lambda *_: rest == "always true"
    test = condition(rest)
    return lambda event, old, new, all_new, *_: test(old if which == "old" else new)


def condition(words: str) -> Test:
    """`n is odd`, `even n`, `n > 5`, `status = guest`, `n divisible by 3`."""
    words = words.strip()
    if found := re.fullmatch(r"(odd|even) (\w+)|(\w+)(?: is|:)? (odd|even)", words):
        name, parity = found[2] or found[3], found[1] or found[4]
        return lambda segment: segment[name] % 2 == (parity == "odd")
    if found := re.fullmatch(r"(\w+) (?:is )?divisible by (\d+)", words):
        return lambda segment: bool(segment[found[1]] % int(found[2]) == 0)
    if found := re.fullmatch(r"(?:status )(\w+)|(\w+)\s*(==|=|!=|>=|<=|>|<)\s*(.+)", words):
        name, sign, value = ("status", "=", found[1]) if found[1] else found.group(2, 3, 4)
        return lambda segment: _COMPARISONS[sign](segment[name], _value(value))
    raise Unknown(f"condition {words!r}")


def action(words: str) -> Action:
    """What is done with one segment."""
    words = words.strip()
    if found := re.fullmatch(r"(.+?)(?:;|,)?\s*\b(?:else|otherwise):? (.+)", words):
        return _either(*_conditional(found[1]), action(found[2]))
    try:
        test, act = _conditional(words)
    except Unknown:
        return _plain(words)
    return _either(test, act, lambda params, segment: segment)


def _conditional(words: str) -> tuple[Test, Action]:
    if found := re.fullmatch(r"(.+?)\s*(?:->|:)\s*(.+)", words):
        return condition(found[1]), _plain(found[2])
    if found := re.fullmatch(r"(.+?) (?:if|when|for) (.+)", words):
        return condition(found[2]), _plain(found[1])
    raise Unknown(words)


def _either(test: Test, then: Action, otherwise: Action) -> Action:
    return lambda params, segment: (then if test(segment) else otherwise)(params, segment)


def _plain(words: str) -> Action:
    for pattern, make in _ACTIONS:
        if found := re.fullmatch(pattern, words, re.IGNORECASE):
            return make(*found.groups())
    return _arithmetic(words)


def _raising(message: str | None = None, data: str | None = None) -> Action:
    reported = {k: _value(v) for k, v in re.findall(r"(\w+): ([^,}]+)", data or "")}

    def act(params: Mapping[str, Any], segment: Segment) -> Any:
        raise Raised(message or "all", reported)

    return act


def _constant(value: Any) -> Action:
    return lambda params, segment: value


def _copies(number: str) -> Action:
    count = _NUMBERS.get(number.lower()) or int(number)
    return lambda params, segment: [segment] * count


def _adding(names: str) -> Action:
    """`adds p and q`: the parameters in their order, under these names."""
    keys = re.split(r"\s*(?:,|and)\s*", names)

    def act(params: Mapping[str, Any], segment: Segment) -> Segment:
        return {**segment, **dict(zip(keys, params.values(), strict=False))}

    return act


def _setting(key: str, value: str) -> Action:
    return lambda params, segment: {**segment, key: _value(value)}


def _text(change: Callable[[str], str]) -> Action:
    """On every text of the segment."""

    def act(params: Mapping[str, Any], segment: Segment) -> Segment:
        return {k: change(v) if isinstance(v, str) else v for k, v in segment.items()}

    return act


def _between(params: Mapping[str, Any], segment: Segment) -> Segment:
    (separator,) = params.values()
    return _text(separator.join)(params, segment)


def _same(params: Mapping[str, Any], segment: Segment) -> Segment:
    return segment


_SEGMENT = r"(?:(?:the |its )?segment(?: unchanged)?|itself|it(?: unchanged)?)"
_ACTIONS: tuple[tuple[str, Callable[..., Action]], ...] = (
    (r"(?:always )?(?:raises|throws)(?: '([^']*)')?(?: with data (\{.*\}))?", _raising),
    (rf"unchanged|identity|(?:returns )?{_SEGMENT}", lambda: _same),
    (r"(?:returns )?(?:nil|null|none|nothing)|drops(?: it)?", lambda: _constant(None)),
    (r"(?:returns )?(?:\[\]|\(\)|an empty \w+)", lambda: _constant([])),
    (r"returns a set", lambda: _constant({("a", 1)})),
    (r"returns a (?:string|keyword)", lambda: _constant("a")),
    (r"returns a number", lambda: _constant(1)),
    (rf"(?:returns )?(?:\[segment\]|(?:a )?(?:list|vector|seq\w*) of {_SEGMENT})",
     lambda: lambda params, segment: [segment]),
    (r"(?:returns )?\[segment,? segment\]|duplicates(?: it)?", lambda: _copies("2")),
    (r"(?:returns )?(?:a (?:lazy )?\w+ of )?(\w+) (?:copies|segments|times)(?: of .*)?", _copies),
    (r"inc(?:rements)? n|adds 1|adds one", lambda: _arithmetic("n+1")),
    (r"dec(?:rements)? n", lambda: _arithmetic("n-1")),
    (r"(?:adds|segment \+) (\w+): (.+)", _setting),
    (r"adds ((?:\w+)(?:(?:, ?| and )\w+)*)", _adding),
    (r"upper[- ]?case", lambda: _text(str.upper)),
    (r"lower[- ]?case", lambda: _text(str.lower)),
    (r"capitali[sz]ed?(?: \w+)?", lambda: _text(str.capitalize)),
    (r"reverse[sd]?", lambda: _text(lambda text: text[::-1])),
    (r"appends (.+)", lambda end: _text(lambda text: text + end)),
    (r"prepends (.+)", lambda start: _text(lambda text: start + text)),
    (r"\w+ between characters", lambda: _between),
)  # fmt: skip


def _arithmetic(words: str) -> Action:
    """An expression; its value takes the place of the field that it names, the first of several."""
    left, _, right = words.rpartition("->")
    try:
        tree = ast.parse(right.strip(), mode="eval").body
    except SyntaxError as error:
        raise Unknown(words) from error
    known = (ast.Constant, ast.Name, ast.BinOp, ast.Load, *_OPERATORS)
    fields = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    if not fields or not all(isinstance(node, known) for node in ast.walk(tree)):
        raise Unknown(words)

    def act(params: Mapping[str, Any], segment: Segment) -> Segment:
        own = [name for name in fields if name in segment]
        value = _evaluate(tree, {**segment, **params})
        return {**segment, left.strip() or (own or fields)[0]: value}

    return act


def _evaluate(node: ast.AST, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate(node.left, names), _evaluate(node.right, names)
        return _OPERATORS[type(node.op)](left, right)
    raise Unknown(ast.dump(node))


def _names(count: int) -> list[str]:
    return [f"p{index}" for index in range(count)] if count > 1 else ["p"][:count]


def _value(text: str) -> Any:
    text = text.strip().strip("'\"")
    return int(text) if re.fullmatch(r"-?\d+", text) else text
