"""`onyx gc`: forget jobs that have ended, and trim the log."""

from __future__ import annotations

import json

from onyx.cli.options import JsonOption, LogPlace
from onyx.client.connection import connect


def gc(
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Forget the jobs that have ended, and trim the log.

    `onyx jobs` no longer shows them, and their ids are free again. Running jobs do not notice.
    """
    with connect(place.settings()) as client:
        collected = client.gc()
    if as_json:
        print(json.dumps({"jobs": collected.jobs, "position": collected.position}))
        return
    count = len(collected.jobs)
    forgotten = f"{count or 'no'} job{'' if count == 1 else 's'} forgotten"
    print(f"{forgotten}; the log starts after entry {collected.position}")
