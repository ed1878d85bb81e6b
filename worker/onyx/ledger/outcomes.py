"""What became of segments that did not simply go on, as whoever sent them hears it.

It travels with the acks of their trees, as a value does (`returns`), under keys that no job can
name. So it arrives before the tree is complete, and counts once however often the tree is
replayed. A message of its own was rejected: it could come after the completion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from onyx.ledger.returns import FAILURES_SHOWN_MAX, OUTCOMES, RETRIED, ReturnPart

FAILURE_LINES_MAX = 10
_ONE_BYTES = 64
"""What one outcome takes, about, without its text."""


class FailedSegment(NamedTuple):
    """A segment that has failed for good."""

    task: str
    error: str
    """In one line, with the line of the user's code."""
    segment: int | None = None
    """The number of the segment in the request, where that is known."""


class Outcomes(msgspec.Struct, frozen=True):
    """Counts of segments, as far as they are not plainly processed."""

    failed: int = 0
    """Failed for good, and nothing took care of them."""
    dead_letters: int = 0
    """Failed, and are in the dead letters."""
    exceptions: int = 0
    """Failed, and a flow condition for exceptions has sent something else on."""
    unmatched: int = 0
    """Matched no flow condition, and went nowhere."""
    given_up: int = 0
    """Failed or were lost, and are not read again (`retryMode: none`)."""
    first_error: str = ""
    failures: tuple[FailedSegment, ...] = ()
    """The first of those that failed or were given up."""

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(
            self.failed + other.failed,
            self.dead_letters + other.dead_letters,
            self.exceptions + other.exceptions,
            self.unmatched + other.unmatched,
            self.given_up + other.given_up,
            self.first_error or other.first_error,
            (self.failures + other.failures)[:FAILURES_SHOWN_MAX],
        )

    @property
    def final_failures(self) -> int:
        """Segments that have not been processed and never will be."""
        return self.failed + self.given_up

    @property
    def first_failure(self) -> str:
        """Task and error of the first that failed for good; there is one."""
        return f"{self.failures[0].task}: {self.failures[0].error}"

    def at(self, segment: int | None) -> Outcomes:
        """What became of one segment of a request, which has this number."""
        failures = tuple(each._replace(segment=segment) for each in self.failures)
        return msgspec.structs.replace(self, failures=failures)

    def at_offset(self, offset: int) -> Outcomes:
        """Outcomes of a request whose first segment has this number in something larger."""
        failures = tuple(
            each if each.segment is None else each._replace(segment=each.segment + offset)
            for each in self.failures
        )
        return msgspec.structs.replace(self, failures=failures)

    def in_order(self) -> Outcomes:
        """The outcomes with failures in the order of segments."""
        failures = sorted(self.failures, key=lambda each: (each.segment is None, each.segment or 0))
        return msgspec.structs.replace(self, failures=tuple(failures))

    def short(self) -> list[Any]:
        """The value that is remembered: with the first failure only."""
        return msgspec.structs.replace(self, failures=self.failures[:1]).value

    @property
    def value(self) -> list[Any]:
        """A value that can travel."""
        return [*msgspec.structs.astuple(self)[:-1], [list(each) for each in self.failures]]

    def part(self) -> ReturnPart:
        """The part of a tree that says this."""
        value = self.value
        text = len(self.first_error) + sum(len(each.error) for each in self.failures)
        return ReturnPart(OUTCOMES, value, _ONE_BYTES + text)


def plain(outcomes: Outcomes) -> dict[str, Any]:
    """Outcomes as plain data: fields, with a mapping for each failure."""
    failures = [each._asdict() for each in outcomes.failures]
    return msgspec.structs.asdict(outcomes) | {"failures": failures}


NOTHING = Outcomes()
UNMATCHED_PART = Outcomes(unmatched=1).part()


def outcomes_of(part: ReturnPart | None) -> Outcomes:
    """What a part says; nothing if there is none."""
    if part is None:
        return NOTHING
    return outcomes_of_value(part.value)


def outcomes_of_value(value: Any) -> Outcomes:
    """The outcomes of `value`."""
    fields = dict(zip(Outcomes.__struct_fields__, value, strict=True))
    failures = tuple(FailedSegment(*each) for each in fields["failures"])
    return Outcomes(**fields | {"failures": failures})


def retried_part(why: str) -> ReturnPart:
    """Why a segment is to be read again, as it travels."""
    return ReturnPart(RETRIED, why, _ONE_BYTES + len(why))


def failure_text(outcomes: Outcomes) -> str:
    """What has failed, in one line for people."""
    first, many = outcomes.failures[0], outcomes.final_failures
    which = "a segment" if first.segment is None else f"segment {first.segment}"
    more = f" ({many:,} segments of the request failed)" if many > 1 else ""
    return f"{which} of the request failed in task {first.task}: {first.error}{more}"


def in_words(outcomes: Outcomes) -> str:
    """What became of segments that were taken and did not simply go on, for people."""
    counts = (
        (outcomes.dead_letters, "went to the dead letters"),
        (outcomes.exceptions, "were taken by a flow condition for exceptions"),
        (outcomes.unmatched, "matched no flow condition"),
    )
    said = [f"{count:,} {what}" for count, what in counts if count]
    if not said:
        return ""
    first = f"; first error: {outcomes.first_error}" if outcomes.first_error else ""
    return f"{', '.join(said)}{first}"


def failure_lines(outcomes: Outcomes) -> list[str]:
    """The first segments that have failed for good, each in a line for people."""
    return [
        f"{'' if number is None else f'segment {number}, '}task {task}: {error}"
        for task, error, number in outcomes.failures[:FAILURE_LINES_MAX]
    ]
