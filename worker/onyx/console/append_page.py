"""The page on which a segment is appended to an input of a job, and that says what became of it.

It does as `onyx append` does, with the certificates and the token of the console, and only where
that has actions. Each form is a request with an id of its own, so what is sent again on the way
counts once; the log of the console says who has sent it. An answer that does not come in time says
that, for the segment may be processed later.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.base.structs import UNREADABLE
from onyx.console.ask_page import views
from onyx.console.board import Manifests, Past
from onyx.console.jobs_page import Tone
from onyx.console.words import took
from onyx.errors import OnyxError, UserError
from onyx.ids import JobId
from onyx.ledger.outcomes import failure_lines, in_words
from onyx.model.job import Job
from onyx.model.plugins import takes_requests
from onyx.requests.request import Answer, Level

logger = logging.getLogger("onyx.console")
SEGMENT_BYTES_MAX = 262_144
APPEND_TIMEOUT_S = 10.0
VALUES_CHARACTERS_MAX = 20_000
Append = Callable[[JobId, str, dict[str, Any], Level, str], Answer]
"""Hand a segment to an input under an id, and wait for at most `APPEND_TIMEOUT_S`. Raises
OnyxError: it cannot be asked for."""
LEVELS: Mapping[Level, str] = {
    Level.ACK: "all that follows is durable in all outputs",
    Level.JOURNAL: "it is durable in the journal of the input",
    Level.NONE: "a worker has it",
}
_decoder = msgspec.json.Decoder(dict[str, Any])


class AppendedSegment(msgspec.Struct, frozen=True):
    """What became of a segment."""

    id: str
    """The request, for logs and for whoever sends it again."""
    status: str
    tone: Tone
    level: Level
    took: str
    reason: str
    values: str
    """What functions of the job have given back, as JSON."""
    lines: tuple[str, ...]
    """How it did not simply go on."""


class AppendPage(msgspec.Struct, frozen=True):
    """All that the page shows."""

    id: str
    name: str
    inputs: tuple[str, ...]
    input: str = ""
    segment: str = "{}"
    level: Level = Level.ACK
    levels: Mapping[Level, str] = msgspec.field(default_factory=lambda: LEVELS)
    problem: str = ""
    appended: AppendedSegment | None = None
    seal: str = ""
    who: str = ""


class SegmentAppends:
    """Hands segments to jobs. For any thread."""

    def __init__(self, past: Past, manifests: Manifests, append: Append) -> None:
        self._past, self._manifests, self._append = past, manifests, append

    def page(self, job: JobId) -> AppendPage:
        """The page before anything is sent.

        Raises:
            UserError: no such job runs, or it takes no requests.
            OnyxError: its manifest cannot be read.
        """
        replica = self._past.replica
        digest = replica.digest_of(job) if job in replica.jobs else None
        if digest is None:
            raise UserError(f"no job {job[:128]} runs: nothing can be appended to it")
        manifest = self._manifests.job(digest, job)
        inputs = inputs_of(manifest)
        if not inputs:
            raise UserError(
                f"job {manifest.name} has no input that takes requests (plugin: requests or http)"
            )
        return AppendPage(job, manifest.name, inputs)

    def send(self, job: JobId, fields: Mapping[str, str], who: str) -> AppendPage:
        """What became of the segment of a form. Raises as `page`."""
        view = self.page(job)
        task, level = fields.get("input", ""), fields.get("level", "")
        view = msgspec.structs.replace(
            view,
            input=task if task in view.inputs else view.inputs[0],
            segment=fields.get("segment", ""),
            level=Level(level) if level in list(Level) else Level.ACK,
        )
        id = uuid.uuid4().hex
        begun_s = time.monotonic()
        try:
            segment = _decoder.decode(view.segment)
            answer = self._append(job, view.input, segment, view.level, id)
        except UNREADABLE as error:
            return msgspec.structs.replace(view, problem=f"The segment is no JSON object: {error}")
        except OnyxError as error:
            return msgspec.structs.replace(view, problem=str(error))
        words = took(time.monotonic() - begun_s)
        logger.info(
            "%s appended a segment to %s of job %s, request %s: %s",
            ascii(who)[1:-1], view.input, job, id, answer.status.value,
        )  # fmt: skip
        return msgspec.structs.replace(view, appended=_appended(answer, view.level, id, words))


def inputs_of(manifest: Job) -> tuple[str, ...]:
    """The inputs of a job that take requests."""
    return tuple(each.name for each in manifest.catalog if takes_requests(each.type, each.plugin))


def _appended(answer: Answer, level: Level, id: str, words: str) -> AppendedSegment:
    values = views.json_text(answer.values) if answer.values else ""
    others = in_words(answer.outcomes)
    return AppendedSegment(
        id,
        answer.status.value,
        _tone(answer, others),
        level,
        words,
        answer.reason,
        values[:VALUES_CHARACTERS_MAX],
        (
            *((others,) if others else ()),
            *failure_lines(answer.outcomes),
            *(f"no value for {key}: {why}" for key, why in answer.errors.items()),
        ),
    )


def _tone(answer: Answer, others: str) -> Tone:
    if answer.status.reached:
        return "warn" if others else "good"
    return "warn" if answer.status.again else "bad"
