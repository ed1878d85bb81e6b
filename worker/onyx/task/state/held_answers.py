"""Answers that wait until all that they tell of is durable.

An answer is made when it is asked for, and given when the chunk is durable that has the last change
before it. So it is one moment of the peer, like every answer, and no crash takes back what is in
it. When another peer may have taken over, nobody knows any more: whoever asked asks again.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from onyx.errors import Unavailable

Held = tuple["Future[Any]", Any]
"""Who waits, and the answer, to a client or to another task. Bounded by the questions that a group
admits at once, and by the tasks that look the state up."""


class HeldAnswers:
    """Not thread-safe. One chunk is on its way at a time."""

    def __init__(self) -> None:
        self._of_next: list[Held] = []
        self._on_its_way: list[Held] = []

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._of_next or self._on_its_way)

    def hold(self, held: Held, changed: bool) -> None:
        """Give an answer later.

        Args:
            changed: it tells of something that is not in the chunk on its way.
        """
        (self._of_next if changed else self._on_its_way).append(held)

    def begun(self) -> None:
        """A chunk with all changes is on its way."""
        self._on_its_way += self._of_next
        self._of_next = []

    def durable(self) -> None:
        """The chunk on its way is durable."""
        held, self._on_its_way = self._on_its_way, []
        for future, answer in held:
            future.set_result(answer)

    def give_up(self) -> None:
        """Somebody else may have the state now."""
        held, self._on_its_way, self._of_next = [*self._on_its_way, *self._of_next], [], []
        for future, _ in held:
            future.set_exception(Unavailable("the job is being allocated anew"))
