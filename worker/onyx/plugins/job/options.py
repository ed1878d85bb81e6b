"""Options of the input `job`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from onyx.errors import Problem
from onyx.plugins.options import Options
from onyx.plugins.starting import Form, StartFrom, wrong_start

_OF_PARTS = "the rows of a part have no times, and their positions follow from the order of parts"
_REFUSED: Mapping[Form, str] = dict.fromkeys(
    ("time", "timeAgo", "recordsAgo", "position", "positions"), _OF_PARTS
)


class JobOptions(Options, frozen=True):
    """What is followed."""

    job: Annotated[str, msgspec.Meta(min_length=1)]
    """Id of the other job, or its name if only one job has it. The versions that upgrade it, or
    that it upgraded, are followed too."""
    task: Annotated[str, msgspec.Meta(min_length=1)]
    """Its output, with `plugin: files`."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Partitions that the parts are dealt to; each is read by one peer. It stays as it is for as
    long as the job and those that upgrade it go on."""
    start_from: StartFrom = "beginning"
    """Where a new job begins: at the `beginning`, with all parts that are there, or at the `end`,
    with those that are published after it has looked for the first time."""
    poll_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 1.0
    """How often each partition looks for new parts."""

    def wrong(self) -> Iterator[Problem]:
        """What is wrong beyond the types of the options."""
        yield from wrong_start(self.start_from, _REFUSED)
