"""The module with a function for each plugin, whose arguments are the plugin's options.

A plugin that reads and writes has one function with three signatures: options of both directions
make a `Medium`, those of one a `Source` or a `Sink`. So a type checker refuses an option in the
wrong direction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from onyx.base.field_docs import field_docs
from onyx.model.plugins import INPUTS, NAMES, OUTPUTS, STAGE_IN_THE_MIDDLE, BuiltIn
from onyx.plugins.options import options_of

_HEAD = '''"""A function for each plugin of Onyx, with its options: docs/guide says what each means.

Generated from the structs of options by `python -m onyx.builder.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from onyx.builder.types import Fn, Medium, Sink, Source
from onyx.builder.values import named, options_of
'''
_FUNCTION_DOC = "`package.module:name`"
"""The docstring of an option that names a function begins so."""


class _Direction(msgspec.Struct, frozen=True):
    """The options of a plugin in one direction, by their names, each as the members of its type."""

    made: str
    required: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, ...]]


def module() -> str:
    """The text of the module."""
    stage = _direction(STAGE_IN_THE_MIDDLE[0], "Stage")
    parts = [_HEAD, _typed_dict("StageOptions", {**stage.required, **stage.optional})]
    for name in NAMES:
        rows = {"Source": INPUTS.get(name), "Sink": OUTPUTS.get(name)}
        found = [_direction(row, made) for made, row in rows.items() if row is not None]
        parts += _functions(name, found)
    return "\n\n".join(parts)


def _direction(row: BuiltIn, made: str) -> _Direction:
    kind = options_of(row)
    docs = field_docs(kind)
    required: dict[str, tuple[str, ...]] = {}
    optional: dict[str, tuple[str, ...]] = {}
    for field in msgspec.structs.fields(kind):
        members = tuple(_members(field.type))
        if docs.get(field.name, "").startswith(_FUNCTION_DOC):
            members = tuple("Fn" if each == "str" else each for each in members)
        (required if field.required else optional)[field.name] = members
    return _Direction(made, required, optional)


def _both(reads: _Direction, writes: _Direction) -> _Direction:
    """What fits either way: options of both, with the values that both take."""

    def common(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        shared = {name: _shared(mine[name], other[name]) for name in mine if name in other}
        return {name: members for name, members in shared.items() if set(members) - {"None"}}

    required = common(reads.required, writes.required)
    return _Direction("Medium", required, common(reads.optional, writes.optional))


def _shared(mine: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    theirs = set(other)
    return tuple(each for each in mine if each in theirs)


def _functions(name: str, found: Sequence[_Direction]) -> list[str]:
    """The function of a plugin, after the classes of its options."""
    every = [_both(*found), *found] if len(found) == 2 else list(found)
    if len({(str(each.required), str(each.optional)) for each in every}) == 1:
        every = every[:1]  # both directions have the same options
    options = [f"{name.capitalize()}{_KEYWORDS[each.made]}" * bool(each.optional) for each in every]
    dicts = [
        _typed_dict(option, each.optional)
        for each, option in zip(every, options, strict=True)
        if option
    ]
    signatures = [
        _signature(name, each, option) for each, option in zip(every, options, strict=True)
    ]
    if len(every) == 1:
        return [*dicts, f"{signatures[0]}\n{_body(name, every[0])}"]
    overloads = [f"@overload\n{each} ...\n" for each in signatures]
    one = f"def {name}(*required: Any, **options: Any) -> Medium:\n{_body(name, every[0], True)}"
    return [*dicts, "\n\n".join([*overloads, one])]


_KEYWORDS = {
    "Medium": "CommonKeywords",
    "Source": "InputKeywords",
    "Sink": "OutputKeywords",
}
"""The last words of the class of the options, by what the function makes."""
_VERBS = {"Medium": "Read or write", "Source": "Read", "Sink": "Write"}


def _body(name: str, direction: _Direction, any_way: bool = False) -> str:
    """What the function does.

    Args:
        any_way: whether it has several signatures, so that what is required has no names.
    """
    if any_way:
        given = [f"**named({json.dumps(list(direction.required))}, required)", "**options"]
    else:
        given = [f'"{each}": {each}' for each in direction.required]
        given += ["**options"] * bool(direction.optional)
    return "\n".join(
        [
            f'    """{_VERBS[direction.made]} by the plugin `{name}`."""',
            f'    return {direction.made}("{name}", options_of({{{", ".join(given)}}}))',
            "",
        ]
    )


def _signature(name: str, direction: _Direction, options: str) -> str:
    arguments = [f"{each}: {_text(members)}" for each, members in direction.required.items()]
    arguments += [f"**options: Unpack[{options}]"] if options else []
    return f"def {name}({', '.join(arguments)}) -> {direction.made}:"


def _typed_dict(name: str, fields: Mapping[str, tuple[str, ...]]) -> str:
    rows = [f"    {field}: {_text(members)}" for field, members in fields.items()]
    doc = '    """Options, as keyword arguments."""\n'
    return "\n".join([f"class {name}(TypedDict, total=False):", doc, *rows, ""])


def _text(members: Iterable[str]) -> str:
    """A type as it is written: words together, `None` last."""
    words = [each for each in members if each.startswith('"')]
    others = [each for each in members if not each.startswith('"') and each != "None"]
    none = ["None"] if "None" in members else []
    return " | ".join([*others, *([f"Literal[{', '.join(words)}]"] if words else []), *none])


def _members(hint: Any) -> list[str]:
    """A type as the list of what it may be; each word of a `Literal` is one."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _members(parameters[0])
    if origin in (Union, UnionType):
        return [each for part in parameters for each in _members(part)]
    if origin is Literal:
        return [f'"{word}"' for word in parameters]
    if origin in (list, tuple):
        return [f"Sequence[{_text(_members(parameters[0]))}]"]
    if origin is dict:
        return [f"Mapping[str, {_text(_members(parameters[1]))}]"]
    if hint is NoneType:
        return ["None"]
    if hint is Any:
        return ["Any"]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return ["Mapping[str, Any]"]
    return [hint.__name__]
