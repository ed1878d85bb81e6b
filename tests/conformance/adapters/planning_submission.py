"""Cases of `planning.json` about the submission of a job: its entry in the log."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.conformance import manifests, replicas

from onyx.client.submissions import submission
from onyx.ids import JobId
from onyx.model.parsing.job import parse_mapping
from onyx.replica.commands import SubmitJob
from onyx.replica.state import Replica

DIGEST = "digest-of-the-job"


def check_submission(case: dict[str, Any]) -> str | None:
    """None when we write the entry that the case says; ours has besides a digest of the job, one
    of the keys that may change while the job runs, and what lines of logs say of it."""
    given = case["input"]
    job = parse_mapping(manifests.manifest(given["job"]))
    got = submission(JobId(given["id"]), job, DIGEST, _short(given["job-scheduler"]))
    wanted = replicas.command(case["expected"], Replica())
    if not isinstance(wanted, SubmitJob):
        return f"got {got.NAME}"
    ours = {"options": got.spec.options, "name": job.name, "metadata": got.spec.metadata}
    spec = replace(wanted.spec, digest=DIGEST, **ours)
    wanted = replace(wanted, spec=spec)
    return None if got == wanted else f"got {got}, not {wanted}"


def _short(scheduler: str) -> str:
    return scheduler.rpartition("/")[2]
