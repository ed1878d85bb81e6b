"""From the parameters of a function to a command line, and its page of help.

A command is a function whose parameters are annotated with an `Option` or an `Argument`. Their
types say what a word may be, as those of settings do: `Annotated[int, Meta(ge=1), Option(...)]`.
Options that go together are the fields of a struct, which is one parameter of the function.
`argparse` reads the line; options stand anywhere, and are written in full.

Rejected: Typer, which imports 200 modules, pydantic among them, in half of the CPU that a command
takes; Click, three times as dear to import as argparse, for a page of help with colours.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import partial
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct

from onyx.base.structs import Mismatch, convert

WIDTH = 80
HELP = "--help"
_SHOWN = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}


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


class Offer(NamedTuple):
    """What a shell may offer of one parameter."""

    names: tuple[str, ...]
    """With their dashes; none: it is given by its place."""
    help: str
    has_value: bool
    words: tuple[str, ...] = ()
    """That its value may be; none: any text."""


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

    def read(self, text: str) -> Any:
        """One value.

        Raises:
            ArgumentTypeError: it cannot have it.
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
            raise ArgumentTypeError(
                f"{text!r} is none of {', '.join(words)}" if words else error.what
            ) from None

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of an option, with their dashes; an argument has none."""
        return tuple(self.about.names.split()) if isinstance(self.about, Option) else ()

    @property
    def shown(self) -> str:
        """What help calls its value."""
        if self.about.metavar or isinstance(self.about, Argument):
            return self.about.metavar or self.name.upper()
        return "|".join(_words(self.kind)) or _SHOWN[self.kind]

    @property
    def help(self) -> str:
        """What is said of it, with what follows from its declaration."""
        more = []
        if isinstance(self.about, Option) and self.about.variable:
            more.append(f"variable: {self.about.variable}")
        if self.default is ...:
            more.append("required")
        elif self.default not in (None, False, "", []) and self.default != Path():
            of_enum = isinstance(self.default, Enum)
            more.append(f"default: {self.default.value if of_enum else self.default}")
        for meta in self.meta:
            bounds = ((">=", meta.ge), ("<=", meta.le))
            more += [f"{sign} {bound}" for sign, bound in bounds if bound is not None]
        if isinstance(self.about, Argument) and (words := _words(self.kind)):
            more.append(f"one of {', '.join(words)}")
        text = self.about.help + (f" [{'; '.join(more)}]" if more else "")
        return text.replace("%", "%%")


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misuse(message.removeprefix("argument "))


def run(name: str, function: Callable[..., None], words: Sequence[str]) -> None:
    """Call a function with what a command line says.

    Raises:
        Misuse: the command line cannot be followed.
        SystemExit: it asked for help, which has been printed.
    """
    parameters = list(_parameters(function))
    values, left = _parser(name, function, parameters).parse_known_intermixed_args(words)
    if left:
        options = [each for parameter in parameters for each in parameter.option_names]
        raise Misuse(unknown("option", left[0], [*options, HELP]))
    given = vars(values)
    for each in parameters:
        if each.many and not given[each.name]:
            given[each.name] = each.default  # of an argument argparse makes an empty list
    _called(function, given)


def offers(function: Callable[..., None]) -> Iterator[Offer]:
    """What there is on the command line of a function."""
    for each in _parameters(function):
        words = () if each.kind is bool else tuple(_words(each.kind))
        yield Offer(each.option_names, each.about.help, each.kind is not bool, words)
    yield Offer((HELP,), "Show how it is used.", has_value=False)


def unknown(kind: str, word: str, known: Sequence[str]) -> str:
    """What is said of a word that is not known, and which one is perhaps meant."""
    if kind == "option" and not word.startswith("-"):
        return f"{word!r} is one argument too many"
    close = get_close_matches(word, known, n=1)
    return f"no such {kind}: {word}" + (f"; did you mean {close[0]}?" if close else "")


def misused(error: Misuse, name: str = "") -> None:
    """Say it, and where help is."""
    command = f"onyx {name}".rstrip()
    print(f"error: {error}\nsee {command} {HELP}", file=sys.stderr)


def _parser(
    name: str, function: Callable[..., None], parameters: Sequence[_Parameter]
) -> ArgumentParser:
    parser = _Parser(
        f"onyx {name}",
        description="\n\n".join(map(_filled, cleandoc(function.__doc__ or "").split("\n\n"))),
        formatter_class=partial(RawDescriptionHelpFormatter, max_help_position=28, width=WIDTH),
        allow_abbrev=False,
    )
    for each in parameters:
        if isinstance(each.about, Argument):
            few, many = ("", "+") if each.default is ... else ("?", "*")
            parser.add_argument(
                each.name,
                nargs=many if each.many else few or None,
                default=each.default,
                type=each.read,
                metavar=each.shown,
                help=each.help,
            )
        elif each.kind is bool:
            parser.add_argument(
                *each.option_names, dest=each.name, action="store_true", help=each.help
            )
        else:
            parser.add_argument(
                *each.option_names,
                dest=each.name,
                action="append" if each.many else "store",
                # Text is read as if the command line had it.
                default=os.environ.get(each.about.variable) or each.default,
                required=each.default is ...,
                type=each.read,
                metavar=each.shown,
                help=each.help,
            )
    return parser


def _called(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What it returns for its own part of what was given."""
    hints = get_type_hints(function, include_extras=True)
    its = {
        name: _called(hints[name], given) if _is_group(hints[name]) else given[name]
        for name in signature(function).parameters
    }
    return function(**its)


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _filled(paragraph: str) -> str:
    return fill(" ".join(paragraph.split()), WIDTH)


def _parameters(function: Callable[..., Any]) -> Iterator[_Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for name, declared in signature(function).parameters.items():
        if _is_group(hints[name]):
            yield from _parameters(hints[name])
            continue
        kind, *extras = get_args(hints[name])
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (each for each in get_args(kind) if each is not NoneType)
        many = get_origin(kind) is list
        (about,) = (each for each in extras if isinstance(each, Option | Argument))
        meta = tuple(each for each in extras if isinstance(each, Meta))
        default = ... if declared.default is Parameter.empty else declared.default
        yield _Parameter(name, about, get_args(kind)[0] if many else kind, meta, many, default)


def _words(kind: Any) -> list[str]:
    """The words that a type offers."""
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    return []
