"""What one call of a function has changed, so that it can be taken back if the call fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Changes:
    """How to take back the changes of one call, in order."""

    __slots__ = ("_backs",)

    def __init__(self) -> None:
        self._backs: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def __bool__(self) -> bool:
        return bool(self._backs)

    def add(self, back: Callable[..., None], *arguments: Any) -> None:
        """A change was made that this call takes back."""
        self._backs.append((back, arguments))

    def keep(self) -> None:
        """The changes stay."""
        self._backs.clear()

    def take_back(self) -> None:
        """All is as it was."""
        while self._backs:
            back, arguments = self._backs.pop()
            back(*arguments)
