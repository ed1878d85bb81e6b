"""What a caller gives, as the plain data of a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from onyx.builder.naming import name_of
from onyx.errors import UserError
from onyx.model.keys.section import Entry, Section
from onyx.model.names import yaml_key
from onyx.model.report import listed, nearest

Plain = dict[str, Any]


def plain(value: Any) -> Any:
    """A value with functions by their names, tuples as lists and times as pairs. What is not known
    here stays: whoever reads the manifest refuses it with its path.

    Raises:
        UserError: a function has no name.
    """
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, timedelta):
        return [value // timedelta(milliseconds=1), "milliseconds"]
    return name_of(value) if callable(value) else value


def keys_of(section: Section, given: Mapping[str, Any]) -> Plain:
    """Keys by the names of Python as keys of a manifest: `batch_size` is `batchSize`.

    Raises:
        UserError: there is no such key.
    """
    by_field = {key.field: key for key in section.keys}
    found: Plain = {}
    for name, value in given.items():
        key = by_field.get(name)
        if key is None:
            hint = nearest(name, by_field) or f"known keys: {', '.join(by_field)}"
            raise UserError(f"{name} is not a key of a {section.name}: {hint}")
        if isinstance(key.kind, Entry) and isinstance(value, Mapping):
            found[key.yaml] = keys_of(key.kind.section, value)
        else:
            found[key.yaml] = plain(value)
    return found


def options_of(given: Mapping[str, Any]) -> Plain:
    """Options of a plugin of Onyx by their names in a manifest."""
    return {yaml_key(name): plain(value) for name, value in given.items()}


def named(names: Sequence[str], values: Sequence[Any]) -> Plain:
    """Arguments without names by the names that they stand for.

    Raises:
        UserError: there are more than names.
    """
    if len(values) > len(names):
        known = listed(names) if names else "no argument"
        raise UserError(f"{len(values)} arguments without a name are given; there can be {known}")
    return dict(zip(names, values, strict=False))
