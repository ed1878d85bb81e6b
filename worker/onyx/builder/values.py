"""What a caller gives, as the plain data of a manifest; functions and processors by the names that
a job holds: `package.module:name`.

A worker is another process, often on another machine, and imports what a job names. So a function
has to be found again by its module and its name. A function of the program that is being run is
named by the file of the program, which a worker imports like any other module; so does Python's own
`multiprocessing`. There is no pickling of code: a job stays data that others can read.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from onyx.builder.types import Fn, Medium
from onyx.errors import UserError
from onyx.model.keys.section import Section, SectionEntry
from onyx.model.names import is_function, yaml_key
from onyx.model.report import listed, nearest
from onyx.processors import Processor

Plain = dict[str, Any]
_MOVE = "define it with def in a module that workers can import"


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
        if isinstance(key.kind, SectionEntry) and isinstance(value, Mapping):
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


def plugin(make: Fn, /, **options: Any) -> Medium:
    """Read or write by a plugin of your own.

    Args:
        make: function that makes the plugin, or its name `package.module:name`.
        options: of the plugin, with the names that it gives them.
    """
    return Medium(str(plain(make)), plain(options))


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function.

    Raises:
        UserError: a worker could not find it by a name; with the reason and what to do.
    """
    is_processor = inspect.isclass(function) and issubclass(function, Processor)
    if not (inspect.isfunction(function) or is_processor):
        shown = getattr(function, "__name__", None) or type(function).__name__
        raise UserError(f"{shown} is no plain function, and a job names functions: {_MOVE}")
    module, name = function.__module__, function.__qualname__
    shown = f"{name}{_place(function)}"
    if function.__name__ == "<lambda>":
        raise UserError(f"{shown} is a lambda, which has no name: {_MOVE}")
    if "<locals>" in name:
        raise UserError(
            f"{shown} is defined within a function, so no worker can import it: {_MOVE}; values "
            "that it takes from there become params, as in map(function, year=2013)"
        )
    if getattr(sys.modules.get(module), name, None) is not function:
        raise UserError(f"{shown} is not what {module} has under this name: {_MOVE}")
    found = f"{_module_of_program(shown) if module == '__main__' else module}:{name}"
    if not is_function(found):
        raise UserError(f"{shown} is private or has a name that jobs cannot hold: {_MOVE}")
    return found


def _place(function: Callable[..., Any]) -> str:
    """Where a function is, for people; a class knows its module only."""
    code = getattr(function, "__code__", None)
    if code is None:
        return f" (module {function.__module__})"
    return f" ({code.co_filename}, line {code.co_firstlineno})"


def _module_of_program(shown: str) -> str:
    """The name by which a worker can import the program that runs.

    Raises:
        UserError: there is none: it is a notebook or a prompt, or lies where nothing is imported.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    if file is None:
        hint = "write it to a file beside the notebook (%%writefile ages.py), and import it"
        raise UserError(f"{shown} is of a notebook or a prompt, which no worker can import: {hint}")
    stem: str = os.path.splitext(os.path.basename(file))[0]
    found = importlib.util.find_spec(stem) if stem.isidentifier() else None
    if found is None or found.origin is None or not os.path.samefile(found.origin, file):
        raise UserError(f"{shown} is of a program that cannot be imported as {stem!r}: {_MOVE}")
    return stem
