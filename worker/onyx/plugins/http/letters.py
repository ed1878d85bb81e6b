"""Dead letters about segments that the server has refused: JSON lines in parts.

A letter has the form of those that a task with `deadLetter` sends. An output has no task behind it,
so it writes its letters itself. A refused request is settled when the letters about its segments
are durable. They are written at least once: after a failure a request is sent and refused again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from onyx.ids import GroupId
from onyx.plugins.http.bodies import segments_in
from onyx.plugins.http.options import HttpOptions
from onyx.plugins.http.sender import Refusal, Request
from onyx.plugins.options import located
from onyx.plugins.parts.formats import JsonLinesFormat
from onyx.plugins.parts.stores import parts_at
from onyx.plugins.parts.writer import PartsWriter
from onyx.plugins.protocol import PluginContext
from onyx.plugins.roll_limits import RollLimits
from onyx.telemetry.catalog import DEAD_LETTERS

LETTERS_AGE_S = 5.0
"""Until then letters are not published, and what was refused is not settled."""


class Letters:
    """The letters of one task. Used by the task's thread."""

    def __init__(self, context: PluginContext, options: HttpOptions, path: str, url: str) -> None:
        """`url`: as messages show it."""
        self._context = context
        self._format = options.format
        self._url = url
        self._written = 0
        store = parts_at(located(context, path, "deadLetterPath"), context)
        form = JsonLinesFormat(context, nan="text")
        self._parts = PartsWriter(store, form, context, RollLimits(age_s=LETTERS_AGE_S))

    def write(self, request: Request, refusal: Refusal) -> int:
        """Write a letter about each segment of a request.

        Returns:
            How many letters have to be durable (`durable`) for these to be.

        Raises:
            Unavailable: nothing was written; it is to be called again.
        """
        segments = segments_in(request.body, self._format)
        letters = [self._letter(each, request, refusal) for each in segments]
        self._parts.write(letters)
        self._written += len(letters)
        self._context.metrics.add(DEAD_LETTERS, len(letters))
        self._context.metrics.note(DEAD_LETTERS, lambda: refusal.answer.words)
        return self._written

    def durable(self) -> int:
        """Letters that are published, in the order of writing."""
        return self._parts.durable()

    def tick(self) -> None:
        """Publish letters that have waited long enough."""
        self._parts.tick()

    def flush(self) -> None:
        """Publish all letters."""
        self._parts.flush()

    def fence(self, live: Sequence[GroupId]) -> None:
        """Fence off all incarnations that are not `live`."""
        self._parts.fence(live)

    def close(self) -> None:
        """Drop letters that are not published: their requests are not settled."""
        self._parts.close()

    def _letter(self, segment: Any, request: Request, refusal: Refusal) -> dict[str, Any]:
        answer, context = refusal.answer, self._context
        at = datetime.fromtimestamp(context.clock.wall_ms() / 1_000, UTC)
        return {
            "error": {
                "type": "Refused",
                "message": answer.words,
                "status": answer.status,
                "answer": answer.text,
                "url": self._url,
                "key": request.key,
            },
            "job": context.job_name,
            "task": context.task,
            "time": at.isoformat(timespec="milliseconds"),
            "tries": refusal.tries,
            "segment": segment,
        }
