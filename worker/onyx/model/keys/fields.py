"""From a class to its section: the keys that its fields are.

The kind of a key follows from the field's type where that says enough: `bool`, `str`, `Literal`,
a class with keys, and tuples and mappings of these. Else the annotation holds it:
`Annotated[int, Count(1, 10)]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import replace

from onyx.base.structs import Field, fields, is_struct
from onyx.model.keys.compound import ListOf, MapOf
from onyx.model.keys.key import NOT_A_KEY, Key
from onyx.model.keys.kinds import Anything, Choice, Flag, FreeMapping, KeyKind, Text
from onyx.model.keys.section import Section, SectionEntries, SectionEntry
from onyx.model.names import yaml_key


@cache
def section_of(cls: type[msgspec.Struct], name: str = "") -> Section:
    """The keys of a frozen struct, in the order of its fields.

    Args:
        cls: the struct.
        name: what messages call an entry; by default the words of the name of the class.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
    doc = (cls.__doc__ or "").partition("\n\n")[0]
    return Section(name or words, " ".join(doc.split()), lambda: _keys(cls), cls)


def _keys(cls: type[msgspec.Struct]) -> tuple[Key, ...]:
    """Raises:
    TypeError: the kind of a field neither follows from its type nor stands in its annotation.
    """
    hints = get_type_hints(cls, include_extras=True)
    return tuple(filter(None, (_key(cls, each, hints[each.name]) for each in fields(cls))))


def _key(owner: type[Any], field: Field, hint: Any) -> Key | None:
    kind, extras = _unwrapped(hint)
    said = next((each for each in reversed(extras) if isinstance(each, Key)), Key())
    if said is NOT_A_KEY:
        return None
    default = field.default
    return replace(
        said,
        yaml=said.yaml or yaml_key(field.name),
        field=field.name,
        kind=_kind(kind, extras, said, default),
        required=default is NODEFAULT,
        default=None if default is NODEFAULT else default,
        owner=owner,
    )


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """A type without `Annotated` and `| None`, and what the annotations hold: the outermost last,
    as in Python's own order, because it counts."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        kind, more = _unwrapped(inner)
        return kind, [*more, *extras]
    if get_origin(hint) in (Union, UnionType):
        others = [each for each in get_args(hint) if each is not NoneType]
        if len(others) == 1:
            return _unwrapped(others[0])
    return hint, []


def _kind(hint: Any, extras: list[Any], said: Key, default: Any) -> KeyKind:
    given: list[KeyKind] = [each for each in extras if not isinstance(each, Key)]
    origin, parameters = get_origin(hint), get_args(hint)
    if given:
        return given[-1]
    if hint is Any:
        return Anything()
    if hint is bool:
        return Flag()
    if hint is str:
        return Text(empty=default == "")
    if origin is Literal:
        return Choice(parameters)
    if is_struct(hint):
        return SectionEntry(section_of(hint))
    if origin is Mapping:
        return (
            FreeMapping()
            if parameters[1] is Any
            else MapOf(_part(parameters[0]), _part(parameters[1]))
        )
    if origin is tuple and is_struct(parameters[0]):
        return SectionEntries(section_of(parameters[0]), said.items_max, said.map_key)
    if origin is tuple and parameters[1:] == (...,):
        return ListOf(_part(parameters[0]))
    raise TypeError(f"the kind of {hint} must stand in the field's annotation")


def _part(hint: Any) -> KeyKind:
    """The kind of what a list or a mapping holds."""
    inner, extras = _unwrapped(hint)
    return _kind(inner, extras, Key(), None)
