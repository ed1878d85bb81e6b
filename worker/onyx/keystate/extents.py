"""Extents of states: what a question gets, and the numbers that bound it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

Number = int | float
"""A coordinate on the axis of a window: milliseconds since the epoch, or whatever is counted."""


class _All:
    """The type of ALL; None is a group like any other."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = _All()
"""Every group, in a query."""

FROM, TO = float("-inf"), float("inf")
"""Bounds of what has none."""


class Extent(msgspec.Struct, frozen=True):
    """One extent of a window, for a query."""

    group: Any
    lower: Number
    upper: Number
    state: Any
    of_session: tuple[Any, ...] = ()
    """The session key of a session, None without `sessionKey`; nothing of other extents."""
    item: Any = None
    """The last key in `state`, if that is a part of a map that has more behind it."""

    @property
    def session_key(self) -> Any:
        """Value of the `sessionKey` of a session."""
        return self.of_session[0] if self.of_session else None
