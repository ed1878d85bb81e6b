"""Options that inputs of live sources share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import JournalOptions


class JournalledOptions(JournalOptions, frozen=True):
    """How the journal of an input is kept, and the ids of messages."""

    remember_ids: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 100_000
    """Ids of messages that each partition remembers, to know one that is given again."""
    remember_seconds: Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] = 3_600
    """How long an id is remembered."""


class LiveOptions(JournalledOptions, frozen=True):
    """How a source that has acks is read."""

    mode: Literal["journal", "native"] = "journal"
    """`journal`: what the source gives is acknowledged to it when it is in the job's journal.
    `native`: when it is processed; at-least-once only, and without a journal."""
    on_failure: Literal["kill", "source"] = "kill"
    """What a message brings about that fails, if no dead letter and no flow condition takes it:
    `kill` the job; with `source`, of mode native, the source hears of it. What asks for a retry it
    gives again, and what has failed for good never."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from super().wrong()
        if self.mode == "journal" and self.on_failure == "source":
            what = "is source, and a source has forgotten what is in a journal"
            yield Problem("onFailure", what, "take mode: native")
        if self.mode == "native":
            defaults = {field.name: field.default for field in msgspec.structs.fields(type(self))}
            for field in msgspec.structs.fields(JournalledOptions):
                if getattr(self, field.name) != defaults[field.name]:
                    yield Problem(field.encode_name, "is of the journal, and mode is native")


class SourceOptions(LiveOptions, frozen=True, kw_only=True):
    """Options of the input `source`: a live source of the user's own."""

    fn: str
    """`package.module:name` of a function that opens the source: `fn(context, partition, cursor)`
    returns an `onyx.plugin.LiveSource`."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the function may want to know (`context.options["settings"]`)."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """How often the source is opened, each time by one peer."""


class IteratorOptions(JournalledOptions, frozen=True, kw_only=True):
    """Options of the input `iterator`."""

    fn: str
    """`package.module:name` of a function that returns an iterator: `fn(cursor)`, with
    `partitions` above 1 `fn(cursor, partition)`."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """How many iterators there are, each run by one peer."""
    repeat_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None
    """Call the function again so long after its iterator has ended, with the last cursor. Without
    it, the input ends with the iterator."""
