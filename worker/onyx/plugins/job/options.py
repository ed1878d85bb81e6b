"""Options of the input `job`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from onyx.plugins.options import Options


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
    poll_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 1.0
    """How often each partition looks for new parts."""
