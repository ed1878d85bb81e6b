"""What one call of a function has changed, so that it can be taken back if the call fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Changes:
    """How to take back the changes of one call, in order."""

    __slots__ = ("_backs",)

    def __init__(self) -> None:
        self._backs: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def add(self, back: Callable[..., object], *arguments: Any) -> None:
        """A change was made that this call takes back."""
        self._backs.append((back, arguments))

    def keep(self) -> bool:
        """The changes stay; whether there are some."""
        if not self._backs:
            return False
        self._backs.clear()
        return True

    def take_back(self) -> None:
        """All is as it was."""
        while self._backs:
            back, arguments = self._backs.pop()
            back(*arguments)
