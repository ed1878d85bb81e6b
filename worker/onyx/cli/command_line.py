"""From the parameters of a function to the words of a command line, and its page of help.

A command is a function whose parameters are annotated with an `Option` or an `Argument`. Their
types say what a word may be, as those of settings do: `Annotated[int, Meta(ge=1), Option(...)]`. An
option takes the next word as its value whatever that begins with, and options stand anywhere.

Rejected: Typer, which imports 200 modules, pydantic among them, in half of the CPU that a command
takes; argparse, which takes no value that begins with a dash, and whose checks of types are
functions of one's own anyway.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from onyx.structs import Mismatch, convert

WIDTH = 80
HELP = "--help"
_SHOWN: Mapping[Any, str] = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
_BLANK_LINES = re.compile(r"\n\s*\n")


class Option(NamedTuple):
    """What is given by its name."""

    names: str
    """With their dashes, separated by blanks."""
    help: str
    metavar: str = ""
    """What help shows as its value; by default its type says."""
    variable: str = ""
    """That has the value, if the command line has none."""
    check: Callable[[str], Any] | None = None
    """Looks at the text that is given, and may raise errors of its own."""


class Argument(NamedTuple):
    """What is given by its place."""

    help: str
    metavar: str = ""
    check: Callable[[str], Any] | None = None


class Misuse(Exception):
    """A command line that cannot be followed."""


class _Parameter(NamedTuple):
    name: str
    about: Option | Argument
    kind: Any
    """The type of one value, without None; bool is a flag."""
    meta: tuple[Meta, ...]
    many: bool
    default: Any
    """Ellipsis: it must be given."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.about.names.split()) if isinstance(self.about, Option) else ()

    @property
    def shown(self) -> str:
        """What a value is called."""
        if self.about.metavar or self.kind is bool:
            return self.about.metavar
        if not self.names:
            return self.name.upper()
        words = _words(self.kind)
        return "|".join(words) if words else _SHOWN[self.kind]

    @property
    def title(self) -> str:
        """It, in a message."""
        return self.names[0] if self.names else self.shown

    def read(self, text: str) -> Any:
        """One value.

        Raises:
            Misuse: it cannot have it.
        """
        if self.about.check is not None:
            return self.about.check(text)
        if self.kind is Path:
            return Path(text)
        try:
            hint = Annotated[self.kind, *self.meta] if self.meta else self.kind
            return convert(text, hint, from_text=True)
        except Mismatch as error:
            words = _words(self.kind)
            what = f"{text!r} is none of {', '.join(words)}" if words else error.what
            raise Misuse(f"invalid value for {self.title}: {what}") from None


def run(name: str, function: Callable[..., None], words: Sequence[str]) -> None:
    """Call a function with what a command line says; with `--help` print its page instead.

    Raises:
        Misuse: the command line cannot be followed.
    """
    parameters = list(_parameters(function))
    values = _read(parameters, words)
    if values is None:
        print(page(name, function))
    else:
        function(**values)


def page(name: str, function: Callable[..., None]) -> str:
    """The page of help of a command."""
    parameters = list(_parameters(function))
    arguments = [each for each in parameters if not each.names]
    usage = [_bracketed(each) for each in arguments]
    paragraphs = _BLANK_LINES.split(textwrap.dedent(f"    {function.__doc__ or ''}").strip())
    text = [f"Usage: onyx {name} {' '.join(['[OPTIONS]', *usage])}"]
    text += [
        textwrap.fill(
            " ".join(each.split()), WIDTH - 2, initial_indent="  ", subsequent_indent="  "
        )
        for each in paragraphs
    ]
    if arguments:
        text.append(listing("Arguments:", [(each.shown, _help(each)) for each in arguments]))
    rows = [
        (f"{', '.join(each.names)} {each.shown}".rstrip(), _help(each))
        for each in parameters
        if each.names
    ]
    text.append(listing("Options:", [*rows, (HELP, "Show this page and exit.")]))
    return "\n\n".join(text)


def listing(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Two columns under a title."""
    indent = min(max(len(first) for first, _ in rows), WIDTH // 3) + 4
    lines = [title]
    for first, second in rows:
        wrapped = textwrap.wrap(second, WIDTH - 2 - indent)
        if len(first) + 4 > indent:
            lines.append(f"  {first}")
        else:
            lines.append(f"  {first:{indent - 2}}{wrapped.pop(0)}")
        lines += [f"{'':{indent}}{each}" for each in wrapped]
    return "\n".join(lines)


def misused(error: Misuse, name: str = "") -> None:
    """Say it, and where help is."""
    command = f"onyx {name}".rstrip()
    print(f"error: {error}\nsee {command} {HELP}", file=sys.stderr)


def suggestion(word: str, known: Sequence[str]) -> str:
    """Which known word is meant, to be put after a message; empty when none is near."""
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _parameters(function: Callable[..., None]) -> Iterator[_Parameter]:
    hints = get_type_hints(function, include_extras=True)
    del hints["return"]
    given = function.__defaults__ or ()
    defaults = [...] * (len(hints) - len(given)) + list(given)
    for (name, hint), default in zip(hints.items(), defaults, strict=True):
        kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (each for each in get_args(kind) if each is not NoneType)
        many = get_origin(kind) is list
        (about,) = (each for each in extras if isinstance(each, Option | Argument))
        meta = tuple(each for each in extras if isinstance(each, Meta))
        yield _Parameter(name, about, get_args(kind)[0] if many else kind, meta, many, default)


def _read(parameters: Sequence[_Parameter], words: Sequence[str]) -> dict[str, Any] | None:
    """The values by the names of parameters; None when help is asked for."""
    named = {name: each for each in parameters for name in each.names}
    places = [each for each in parameters if not each.names]
    given: list[tuple[_Parameter, str]] = []
    rest: list[str] = []
    left = iter(words)
    values: dict[str, Any] = {}
    for word in left:
        if word == "--":
            rest += left
        elif word == HELP:
            return None
        elif word == "-" or not word.startswith("-"):
            rest.append(word)
        else:
            _take(word, left, named, values, given)
    for place in places:
        given += [(place, rest.pop(0)) for _ in range(len(rest) if place.many else 1) if rest]
    if rest:
        raise Misuse(f"{rest[0]!r} is one argument too many")
    for parameter, text in given:
        value = parameter.read(text)
        if parameter.many:
            values.setdefault(parameter.name, []).append(value)
        else:
            values[parameter.name] = value
    return {
        each.name: values[each.name] if each.name in values else _unsaid(each)
        for each in parameters
    }


def _take(
    word: str,
    left: Iterator[str],
    named: Mapping[str, _Parameter],
    values: dict[str, Any],
    given: list[tuple[_Parameter, str]],
) -> None:
    """One option of a command line, with its value."""
    name, equals, text = word.partition("=")
    found = named.get(name)
    if found is None:
        raise Misuse(f"no such option: {name}{suggestion(name, [*named, HELP])}")
    if found.kind is bool:
        if equals:
            raise Misuse(f"{name} takes no value")
        values[found.name] = True
        return
    value = text if equals else next(left, None)
    if value is None:
        raise Misuse(f"{name} needs a value")
    given.append((found, value))


def _unsaid(parameter: _Parameter) -> Any:
    """The value of a parameter that the command line does not have."""
    about = parameter.about
    if isinstance(about, Option) and about.variable and (text := os.environ.get(about.variable)):
        return parameter.read(text)
    if parameter.default is ...:
        raise Misuse(f"{parameter.title} is missing")
    return parameter.default


def _words(kind: Any) -> list[str]:
    """The words that a type offers."""
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    return []


def _bracketed(argument: _Parameter) -> str:
    shown = argument.shown.removesuffix("...") + "..." * argument.many
    return shown if argument.default is ... else f"[{shown}]"


def _help(parameter: _Parameter) -> str:
    """What is said of a parameter, with what follows from its declaration."""
    more = []
    if isinstance(parameter.about, Option) and parameter.about.variable:
        more.append(f"variable: {parameter.about.variable}")
    default = parameter.default
    if default is ...:
        more.append("required")
    elif default not in (None, False, "", []) and default != Path():
        more.append(f"default: {default.value if isinstance(default, Enum) else default}")
    for meta in parameter.meta:
        more += [f"{sign} {n}" for sign, n in ((">=", meta.ge), ("<=", meta.le)) if n is not None]
    if not parameter.names and (words := _words(parameter.kind)):
        more.append(f"one of {', '.join(words)}")
    return parameter.about.help + (f" [{'; '.join(more)}]" if more else "")
