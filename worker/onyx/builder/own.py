"""A plugin of the user's own, in a job."""

from __future__ import annotations

from typing import Any

from onyx.builder.types import Fn, Medium
from onyx.builder.values import plain


def plugin(make: Fn, /, **options: Any) -> Medium:
    """Read or write by a plugin of your own.

    Args:
        make: function that makes the plugin, or its name `package.module:name`.
        options: of the plugin, with the names that it gives them.
    """
    return Medium(str(plain(make)), plain(options))
