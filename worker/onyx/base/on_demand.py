"""Parts of Onyx that only some jobs or settings need: imported when the first of them does.

Each worker process imports what nearly every job has; the rest would be a part of each start. What
is loaded on demand stands as an `OnDemand` at the head of the module that uses it, so a search for
that word finds all of it, and nothing is imported inside a function. Plugins have a table of their
own (`model.plugins`).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Generic, TypeVar

from onyx.errors import SettingsError

T = TypeVar("T")


class OnDemand(Generic[T]):
    """What an import path names, `module:name`; Python imports its module once."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def load(self) -> T:
        """What the name stands for, imported now if it was not yet."""
        found: T = loaded(self.path)
        return found


class ModuleOnDemand:
    """A module whose names are attributes; imported when the first of them is asked for.

    Args:
        extra: of this package, which has what the module imports; without it SettingsError is
            raised, which says so.
    """

    def __init__(self, name: str, extra: str = "") -> None:
        self._module = name
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Python asks for those of itself, as when it copies
        try:
            module = importlib.import_module(self._module)
        except ImportError as error:
            if not self._extra:
                raise
            raise SettingsError(
                f"the {self._extra} needs {error.name}, which this Python does not have: "
                + install(self._extra)
            ) from error
        found = getattr(module, name)
        setattr(self, name, found)  # the next time Python finds it without this method
        return found


def loaded(path: str) -> Any:
    """What an import path names: `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def is_here(module: str) -> bool:
    """Whether there is such a module; it is looked for and not imported, which may take a second
    and 60 MB."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def install(extra: str) -> str:
    """How an extra of this package is installed."""
    return f"pip install 'onyx-on-kubernetes[{extra}]'"
