"""Jobs as people name them: by an id, by the name in the manifest, or by the beginning of an id.

An id counts first, then a name, then the beginning of ids: so what a job is called never depends on
the random ids of others. Of several jobs of one name those that run are meant; of those that have
ended, the one that ended last. Commands and requests share the rule, so a text that `onyx jobs`
takes is one that `onyx append` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from onyx.ids import JobId
from onyx.replica.jobs import ended_last, is_known
from onyx.replica.state import Replica

ENDED_MAX = 100
"""Jobs that have ended whose names are looked at: each is read from ZooKeeper."""


def jobs_called(replica: Replica, text: str, name_of: Callable[[JobId], str]) -> Sequence[JobId]:
    """The jobs that a text may mean: one where it is clear, none where there is no such job.

    Args:
        name_of: the name in the manifest of a job; it may block.
    """
    if is_known(replica, JobId(text)):
        return [JobId(text)]
    ended = (each for each in ended_last(replica, ENDED_MAX) if name_of(each) == text)
    return (
        [each for each in replica.jobs if name_of(each) == text]
        or list(islice(ended, 1))
        or [each for each in replica.records if text and each.startswith(text)]
    )
