"""Options of the input `job`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated

import msgspec

from onyx.errors import Problem, UserError
from onyx.plugins.options import Options
from onyx.plugins.protocol import OtherJobState, PluginContext
from onyx.plugins.starting import Form, StartFrom, wrong_start

_OF_PARTS = "the rows of a part have no times, and their positions follow from the order of parts"
REFUSED_OF_OUTPUTS: Mapping[Form, str] = dict.fromkeys(
    ("time", "timeAgo", "recordsAgo", "position", "positions"), _OF_PARTS
)


class JobOptions(Options, frozen=True):
    """What is followed."""

    job: Annotated[str, msgspec.Meta(min_length=1)]
    """Id of the other job, or its name if only one job has it. The versions that upgrade it, or
    that it upgraded, are followed too."""
    task: Annotated[str, msgspec.Meta(min_length=1)]
    """Its output, with `plugin: files`, or an input that keeps its journal (`keepDays`,
    `keepBytes`)."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    """Partitions that the parts of an output are dealt to, 1 if it is not given; each is read by
    one peer. It stays as it is for as long as the job and those that upgrade it go on. A journal
    has its own."""
    start_from: StartFrom = "beginning"
    """Where a new job begins: at the `beginning` of what is there, or at the `end`; in a journal
    also at a time, a position, or so long or so many segments ago."""
    poll_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 1.0
    """How often each partition looks for more."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_start(self.start_from, {})

    def check_another(self, context: PluginContext, jobs: Collection[str]) -> None:
        """Raises UserError: the job follows itself."""
        if context.job in jobs:
            raise UserError(
                f"{context.where}: a job cannot follow itself: job {self.job} is this one"
            )

    def no_more(self, context: PluginContext, state: OtherJobState) -> str:
        """Why nothing more comes of a job of which all is read; empty if something may."""
        if state in ("runs", "completed"):
            return ""
        how = "was killed" if state == "killed" else "is known no more (`onyx gc`)"
        return (
            f"{context.where}: all is read that job {self.job} has published, and it {how}: submit "
            "a job that upgrades it, or drain this one"
        )
