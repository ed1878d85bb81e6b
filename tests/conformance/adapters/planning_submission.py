"""Cases of `planning.json` about the submission of a job: its entry in the log."""

from __future__ import annotations

from typing import Any

from tests.conformance import manifests

from onyx.ids import JobId
from onyx.model.parsing.job import parse_mapping
from onyx.replica.submission import submission

DIGEST = "digest-of-the-job"


def check_submission(case: dict[str, Any]) -> str | None:
    """None when we write the entry that the case says; ours has a digest besides."""
    given = case["input"]
    job = parse_mapping(manifests.manifest(given["job"]))
    command = submission(JobId(given["id"]), job, DIGEST, _short(given["job-scheduler"]))
    wanted = {key: _plain(value) for key, value in case["expected"]["args"].items()}
    wanted |= {"task-scheduler": _short(wanted["task-scheduler"]), "digest": DIGEST}
    if command.fn != case["expected"]["fn"]:
        return f"got {command.fn}"
    wrong = sorted(
        key for key in {*wanted, *command.args} if wanted.get(key) != command.args.get(key)
    )
    return f"got { {key: command.args.get(key) for key in wrong} }" if wrong else None


def _short(scheduler: str) -> str:
    return scheduler.rpartition("/")[2]


def _plain(value: Any) -> Any:
    """Infinity as we write it."""
    if isinstance(value, dict):
        return value["$num"] if "$num" in value else {k: _plain(v) for k, v in value.items()}
    return value
