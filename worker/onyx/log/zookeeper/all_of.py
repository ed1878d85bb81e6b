"""Several requests in flight as one, so that they share one wait and one repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError


class AllOf:
    """Several started requests as one; a node that is not there answers None."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get(self, timeout: float) -> list[Any]:
        """Their answers in order; kazoo's exceptions as they come."""
        return [self._one(result, timeout) for result in self._results]

    @staticmethod
    def _one(result: Any, timeout: float) -> Any:
        try:
            return result.get(timeout=timeout)
        except NoNodeError:
            return None
