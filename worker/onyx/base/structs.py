"""Values that msgspec reads by the types of a class: settings, options of plugins, records.

A field is described by its type (`Annotated[int, Meta(ge=1)]`, `Literal["a", "b"]`), its default
and the docstring below it. `convert` reads one value and says what is wrong with it in words.

By itself msgspec gathers what it must know of a class when it reads the first value, and lets other
threads use it while it is incomplete: two threads that read their first values at the same time end
the process by a segmentation fault (0.22; structs and dataclasses alike). Decoders made while a
module is imported are safe, as is a class with the decorator `prepared`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar, get_args, get_origin

import msgspec

from onyx.errors import StateError

T = TypeVar("T")

RESTORE = "restore it from a copy, or submit the job again under another name"
"""What whoever finds the state of a job damaged is to do."""
UNREADABLE = (ValueError, RecursionError)
"""What decoding raises for bytes that are something else. Errors of msgspec, text that is no UTF-8
and numbers that are none are all ValueErrors; nesting without an end is not."""

_BEFORE_VALUES = (b"{", b"[", b",")

_NOT_OFFERED = re.compile(r"invalid enum value '(.*)'", re.DOTALL)


class Mismatch(ValueError):
    """A value is not of its type."""

    def __init__(self, message: str, hint: Any) -> None:
        what, _, path = message.partition(" - at `$")
        self.what = what[:1].lower() + what[1:]
        """What was expected, and what was given."""
        self.path = path.rstrip("`")
        """Where within the value: `[2]`, `.size`; empty if it is the value itself."""
        found = _NOT_OFFERED.fullmatch(self.what)
        self.given = found[1] if found else None
        """The word that is none of those `offered`; None if it is not about words."""
        self.offered = sorted(_offered(hint)) if found else []
        super().__init__(self.what)


def convert(value: Any, hint: Any, *, from_text: bool = False) -> Any:
    """A value as the type `hint`.

    Args:
        from_text: whether text such as `5` or `true` stands for numbers and booleans.

    Raises:
        Mismatch: the value is not of this type.
    """
    try:
        return msgspec.convert(value, hint, strict=not from_text)
    except msgspec.ValidationError as error:
        raise Mismatch(str(error), hint) from None


class Field(NamedTuple):
    """A field of a struct."""

    name: str
    default: Any
    """`msgspec.NODEFAULT`: it must be given."""


def json_values(data: bytes) -> int:
    """How many values a text of JSON has, at most: what its bytes take in memory once they are made
    depends on that. Nothing is made here."""
    return sum(map(data.count, _BEFORE_VALUES))


def fields(kind: type[msgspec.Struct]) -> list[Field]:
    """The fields of a struct in their order; that of msgspec reads their types too."""
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    missing = [msgspec.NODEFAULT] * (len(names) - len(defaults))
    values = [getattr(each, "factory", lambda each=each: each)() for each in defaults]
    return [Field(*each) for each in zip(names, [*missing, *values], strict=True)]


def is_struct(hint: Any) -> TypeGuard[type[msgspec.Struct]]:
    """Whether a type is that of a struct."""
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def prepared(kind: type[T]) -> type[T]:
    """Class decorator, the outermost one: several threads may read the class at once."""
    msgspec.json.Decoder(kind)
    return kind


def stored(data: bytes, hint: Any, what: str, remedy: str = RESTORE) -> Any:
    """What was stored as JSON, as the type `hint`: meanwhile somebody may have put something else
    there, or a disk may have lost the end of it.

    Args:
        what: the file, object or document, with the job and task whose it is.
        remedy: what whoever finds it damaged is to do.

    Raises:
        StateError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=hint)
    except UNREADABLE as error:
        raise StateError(f"{what} is damaged ({len(data)} bytes: {error}); {remedy}") from error


def _offered(hint: Any) -> Iterator[str]:
    """The words that a type offers, anywhere in it."""
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for each in get_args(hint):
            yield from _offered(each)
