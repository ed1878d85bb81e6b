"""Jobs as people name them: by an id, by its beginning, or by the name in the manifest.

An id counts first, then a name, then the beginning of ids: so what a job is called never depends on
the random ids of others. Of several jobs of one name those that run are meant; of those that have
ended, the one that ended last.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.client.manifests import absent, readable
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import ClientLog
from onyx.model.report import listed
from onyx.path_names import path_name
from onyx.replica.jobs import ended_last, is_known
from onyx.replica.state import Replica

SHOWN_MAX = 10
ENDED_MAX = 100
"""Jobs that have ended whose names are looked at: each is read from ZooKeeper."""


def named(log: ClientLog, replica: Replica, text: str) -> JobId:
    """The job that somebody names.

    Raises:
        UserError: there is none, or there are several; in a tenancy without jobs the message names
            the others.
    """
    job = JobId(path_name(text, "the id of a job"))
    if is_known(replica, job):
        return job
    running = [each for each in replica.jobs if _name(log, replica, each) == text]
    if running:
        return _one(running, f"jobs with the name {text} run")
    for each in ended_last(replica, ENDED_MAX):
        if _name(log, replica, each) == text:
            return each
    beginning = [each for each in replica.records if each.startswith(text)]
    if beginning:
        return _one(beginning, f"ids of jobs begin with {text}")
    raise UserError(absent(replica, job) + _elsewhere(log, replica))


def _one(found: Sequence[JobId], many: str) -> JobId:
    if len(found) > 1:
        ids = listed(sorted(found)[:SHOWN_MAX])
        raise UserError(f"{len(found)} {many}: give the id: {ids}")
    return found[0]


def _name(log: ClientLog, replica: Replica, job: JobId) -> str:
    manifest, _ = readable(log, replica, job)
    return "" if manifest is None else manifest.name


def _elsewhere(log: ClientLog, replica: Replica) -> str:
    """The tenancies in which the job may be, when this one has never had any."""
    if replica.records or replica.completed_before or replica.killed_before:
        return ""
    others = log.other_tenancies()
    if not others:
        return ""
    shown = listed(others[:SHOWN_MAX])
    return f"; this tenancy has no jobs; others have theirs in {shown}: give --tenancy"
