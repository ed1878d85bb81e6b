"""`onyx bundle`: all that a cluster says of a job, in one file."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from onyx.base.seams import SystemClock
from onyx.bundle.bundle_file import write
from onyx.bundle.gathering import JobGathering
from onyx.cli.command_line import Option
from onyx.cli.local_server import KeptPlace
from onyx.cli.options import JobArgument, TokenPlace
from onyx.client.connection import connect
from onyx.client.measures import measure_reader
from onyx.replica.authors import escaped

NOTE_CHARACTERS_MAX = 1_000


def bundle(
    job: JobArgument,
    output: Annotated[
        Path | None, Option("--output", "Where the file goes; replaced if there.", metavar="FILE")
    ] = None,
    values: Annotated[
        bool, Option("--values", "With what was in segments, for `onyx replay`.")
    ] = False,
    place: KeptPlace = KeptPlace(),
    token: TokenPlace = TokenPlace(),
) -> None:
    """Write all that a cluster says of a job into one file: the log, the manifest, reports, what
    workers measure and have logged, and why it failed.

    `onyx console --bundle FILE` shows it, `onyx replay FILE` runs the batch again at which the job
    failed. Secrets are left out; so is what was in segments, unless --values is given. What could
    not be had is said on standard error, and stands in the file.
    """
    with ExitStack() as stack:
        found = stack.enter_context(place.opened())
        found = token.of(found)
        client = stack.enter_context(connect(found))
        id = client.named(job)
        file = output or Path(f"onyx-{id}.bundle.gz")
        reader = measure_reader(client, found)
        clock = SystemClock()
        gathering = JobGathering(client, reader, found.tenancy_id, id, values, clock.wall_ms)
        size = write(file, gathering.lines())
    for note in gathering.notes:
        print(f"warning: {escaped(note, NOTE_CHARACTERS_MAX)}", file=sys.stderr)
    print(f"{file} ({size:,} bytes)")
