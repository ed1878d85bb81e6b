"""What a caller gives to the builder, beside text and numbers: types, plugins with their options,
shapes of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

Fn = str | Callable[..., Any]
"""A function of a module, or its name `package.module:name`; where Onyx has words, also these."""
Amount = str | tuple[int, str] | timedelta
"""`"5 minutes"`, `(5, "minutes")` or a `timedelta`; of segments `"100 elements"`."""
Time = int | Amount
"""A time, or a number of milliseconds."""
Predicate = Fn | Sequence[Any]
"""A function, `(function, "param", ...)`, a comparison as `(">", "age", 100)`, or
`("and" | "or" | "not", predicate, ...)`."""
Aggregation = Fn | Sequence[Any]
"""The name of an aggregation, `("sum", "amount")`, or a function of your own."""


@dataclass(frozen=True, slots=True)
class _Plugin:
    plugin: str
    options: Mapping[str, Any]


class Source(_Plugin):
    """What a job reads: a plugin with its options."""

    __slots__ = ()


class Sink(_Plugin):
    """What a job writes to: a plugin with its options."""

    __slots__ = ()


class Medium(Source, Sink):
    """A plugin with options that fit reading as well as writing."""

    __slots__ = ()


class WindowShape(msgspec.Struct, frozen=True):
    """The type of a window, with the keys that go with it."""

    type: str
    keys: Mapping[str, Any]


def fixed(by: str, range: Amount, *, min_value: int = 0) -> WindowShape:
    """Extents of one length, one after the other.

    Args:
        by: key of a segment whose value, usually a time, says where it belongs.
        range: length of an extent.
        min_value: smallest value of `by`; extents are aligned to it.
    """
    return WindowShape("fixed", _without_defaults(window_key=by, range=range, min_value=min_value))


def sliding(by: str, range: Amount, slide: Amount, *, min_value: int = 0) -> WindowShape:
    """Extents of one length, each a `slide` after the one before; arguments as of `fixed`."""
    keys = _without_defaults(window_key=by, range=range, slide=slide, min_value=min_value)
    return WindowShape("sliding", keys)


def session(by: str, gap: Amount, *, session_key: str | None = None) -> WindowShape:
    """Extents that end when nothing comes for the time `gap`.

    Args:
        by: key of a segment that holds its time.
        gap: after so long without segments a session ends.
        session_key: key by whose value segments belong to different sessions.
    """
    return WindowShape(
        "session", _without_defaults(window_key=by, timeout_gap=gap, session_key=session_key)
    )


def whole() -> WindowShape:
    """One extent for all segments: a window of type `global`."""
    return WindowShape("global", {})


def _without_defaults(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value not in (None, 0)}
