"""Settings from environment variables: which there are, and what each may hold, by the types of
nested, frozen classes."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from onyx.base.structs import UNREADABLE, Mismatch, convert, fields, is_struct
from onyx.errors import SettingsError

T = TypeVar("T", bound=msgspec.Struct)
Port = Annotated[int, Meta(ge=0, le=65_535)]
_PORT = r"(6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[1-5]\d{4}|\d{1,4})"
Ports = Annotated[
    str,
    Meta(
        pattern=rf"^{_PORT}(-{_PORT})?(, ?{_PORT}(-{_PORT})?)*$",
        description="ports up to 65535, such as 7700, 7700-7709 or 7700,7710-7719",
    ),
]
"""What `transport.ports` reads."""


def flatten(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every variable of nested settings, and the value of its setting."""
    for each in fields(type(value)):
        inner = getattr(value, each.name)
        variable = f"{prefix}_{each.name.upper()}"
        if is_struct(type(inner)):
            yield from flatten(inner, variable)
        else:
            yield variable, inner


def written(value: Any, prefix: str) -> dict[str, str]:
    """The variables from which `read` makes these settings again."""
    found: dict[str, str] = {}
    for variable, each in flatten(value, prefix):
        if isinstance(each, tuple):
            found[variable] = ",".join(each)
        elif isinstance(each, Mapping):
            found[variable] = json.dumps(each)
        elif each is not None:
            found[variable] = str(each).lower() if isinstance(each, bool) else str(each)
    return found


def read(cls: type[T], environment: Mapping[str, str], prefix: str, **given: Any) -> T:
    """Settings of any frozen class, with others nested in it; fields in `given` are not read.

    Raises:
        SettingsError: variables do not hold what their settings take; names all of them.
    """
    problems: list[str] = []
    found = _read(cls, environment, prefix, problems, given)
    if problems:
        raise SettingsError("\n".join(problems))
    return found


def _read(
    cls: type[T],
    environment: Mapping[str, str],
    prefix: str,
    problems: list[str],
    given: Mapping[str, Any],
) -> T:
    hints = get_type_hints(cls, include_extras=True)
    values = dict(given)
    for each in fields(cls):
        variable, hint = f"{prefix}_{each.name.upper()}", hints[each.name]
        if each.name in given:
            continue
        if is_struct(hint):
            values[each.name] = _read(hints[each.name], environment, variable, problems, {})
        elif variable in environment:
            try:
                values[each.name] = from_text(environment[variable], hint)
            except ValueError as error:
                problems.append(f"{variable}={environment[variable]!r}: {error}")
    return cls(**values)


def from_text(text: str, hint: Any) -> Any:
    """The value of a type that a text stands for.

    Raises:
        ValueError: it stands for none; says what was expected.
    """
    value: Any = text
    if get_origin(hint) is tuple:
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        if get_origin(hint) is Mapping:
            value = json.loads(text)
        return convert(value, hint, from_text=True)
    except Mismatch as error:
        raise ValueError(_expected(error, hint)) from error
    except UNREADABLE as error:
        raise ValueError(f"expected JSON: {error}") from error


def _expected(error: Mismatch, hint: Any) -> str:
    """What a variable may hold, in words: everything in a variable is text."""
    for each in getattr(hint, "__metadata__", ()):
        if each.description is not None:
            return f"expected {each.description}"
    if error.given is not None:
        return f"expected {', '.join(error.offered)}"
    words = error.what.partition(", got ")[0]
    for name, word in _WORDS.items():
        words = words.replace(f"`{name}`", word).replace(f"`{name} | null`", word)
    return f"{words} at {error.path}" if error.path else words


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a JSON object",
}


_NEAR = 0.85
_OTHERS = re.compile(r"(OPERATOR_|PEERS$|PROCESSES$|POD_|.*_SERVICE_(HOST|PORT)|.*_PORT(_\d|$))")
"""Options of commands, the operator, and what Kubernetes says of pods and services."""


def misspelt(environment: Mapping[str, str], known: Sequence[str], prefix: str) -> list[str]:
    """What is said of variables that are nearly called as a known one, and are ignored. Others are
    no concern of Onyx: Kubernetes makes some of the names of services."""
    found = []
    for name in sorted(set(environment).difference(known)):
        if name.startswith(f"{prefix}_") and not _OTHERS.match(name[len(prefix) + 1 :]):
            close = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
            found += [f"{name} is no setting and is ignored: is it {close[0]}?"] if close else []
    return found
