"""The page of all settings: a row for each variable, with its default and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onyx.base.field_docs import field_docs
from onyx.base.structs import fields, is_struct
from onyx.settings import Settings

TABLE = "| variable | default | meaning |\n|---|---|---|\n"
_HEAD = """# Settings

Generated from `worker/onyx/settings.py` by `python -m onyx.model.generate`.

Every setting of a worker or a command is a variable; options of the command line override it.
A duration is in seconds (`_S`), a size in bytes (`_BYTES`). A list is separated by commas.

"""


def page() -> str:
    """The whole page of settings."""
    return _HEAD + TABLE + "".join(rows(Settings(), "ONYX"))


def rows(settings: Any, prefix: str) -> Iterator[str]:
    """A row for each variable of some settings, in the order of their fields.

    Args:
        settings: an instance with all defaults; settings of the engine within it are left out.
        prefix: of the variables, such as `ONYX`.
    """
    docs = field_docs(type(settings))
    for each in fields(type(settings)):
        default, variable = getattr(settings, each.name), f"{prefix}_{each.name.upper()}"
        if isinstance(default, Settings):
            continue
        if is_struct(type(default)):
            yield from rows(default, variable)
        else:
            yield f"| `{variable}` | {_shown(default)} | {docs[each.name]} |\n"


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default not in ((), "", None) else ""
