"""A NumPy array that grows at its end."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item", bound=np.generic)
_FIRST = 64
_GROWTH = 1.5
"""Twice as large would leave half of the memory of large arrays unused more often than not."""


class Growing(Generic[Item]):
    """Items, of which `all` are those that are there."""

    __slots__ = ("_held", "_many")

    def __init__(self, dtype: type[Item]) -> None:
        self._held: NDArray[Item] = np.empty(0, dtype)
        self._many = 0

    def __len__(self) -> int:
        return self._many

    @property
    def all(self) -> NDArray[Item]:
        """The items; changes of them stay until the next `add`."""
        return self._held[: self._many]

    def add(self, items: NDArray[Item]) -> None:
        """Put items at the end."""
        end = self._many + len(items)
        if end > len(self._held):
            size = max(end, _FIRST, int(len(self._held) * _GROWTH))
            grown = np.empty(size, self._held.dtype)
            grown[: self._many] = self.all
            self._held = grown
        self._held[self._many : end] = items
        self._many = end

    def add_same(self, item: Any, many: int) -> None:
        """Put one item at the end so many times."""
        self.add(np.full(many, item, self._held.dtype))
