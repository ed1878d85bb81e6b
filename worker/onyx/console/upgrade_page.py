"""What a changed manifest would do in the place of a job, before anybody submits it: the plan that
`onyx submit --upgrade JOB --dry-run` prints and the operator makes. It is found by reading alone:
workers are not asked whether they have the code, because their answers are entries of the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from onyx.client.manifests import manifest
from onyx.client.reader import JobReader
from onyx.client.submissions import submission
from onyx.console.job_page import DifferenceLine, difference, yaml_of
from onyx.errors import JobRefused, ManifestError, Problem, UserError
from onyx.ids import JobId
from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.keys.kinds import JOB_ID
from onyx.model.parsing.job import parse_file
from onyx.model.parsing.text import located
from onyx.replica.jobs import is_known
from onyx.replica.state import Replica
from onyx.submission.job_checks import wrong_options, wrong_sql
from onyx.submission.preflight import peers_problem
from onyx.submission.upgrades import plan_upgrade
from onyx.upgrade.plan import Step, UpgradePlan

SOURCE = "manifest"


class UpgradePage(msgspec.Struct, frozen=True):
    """What the page shows: a manifest to change, and what the one that was sent would do."""

    id: str
    name: str
    text: str
    is_answer: bool = False
    problems: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    pauses: str = ""
    difference: tuple[DifferenceLine, ...] = ()


def upgrade_page(client: JobReader, replica: Replica, job: JobId) -> UpgradePage:
    """The page as it is opened, with the manifest of the job. Raises OnyxError when that cannot be
    read."""
    before = manifest(client.log, replica, job)
    return UpgradePage(job, before.name, _text_of(before))


def upgrade_tried(client: JobReader, replica: Replica, job: JobId, text: str) -> UpgradePage:
    """The page with what a manifest would do. Raises as `upgrade_page`."""
    before = manifest(client.log, replica, job)
    page = UpgradePage(job, before.name, text, is_answer=True)
    try:
        new, _ = parse_file(text, SOURCE, upgrades=job)
        if wrong := [*wrong_options(new), *wrong_sql(new), *_taken(replica, new)]:
            raise ManifestError(located(wrong, text.encode(), SOURCE))
        plan = _plan(client, replica, new)
    except ManifestError as error:
        return replace(page, problems=tuple(map(str, error.problems)))
    except (UserError, JobRefused) as error:
        return replace(page, problems=(str(error),))
    return replace(
        page,
        problems=tuple(map(str, plan.problems)),
        steps=plan.steps,
        pauses=plan.pauses,
        difference=difference(_text_of(before), _text_of(new)),
    )


def _plan(client: JobReader, replica: Replica, new: Job) -> UpgradePlan:
    assert new.upgrade is not None
    plan = plan_upgrade(client.log, replica, new, new.upgrade)
    entry = submission(JobId(str(uuid.uuid4())), new, "", replica.job_scheduler)
    lacking = peers_problem(replica, entry)
    return plan if lacking is None else replace(plan, problems=(*plan.problems, lacking))


def _taken(replica: Replica, job: Job) -> Iterator[Problem]:
    id = str(job.metadata.get(JOB_ID, ""))
    if id and is_known(replica, JobId(id)):
        yield Problem(f"metadata.{JOB_ID}", "is that of a job which is known", "choose another one")


def _text_of(job: Job) -> str:
    """A job as a manifest, without what is that job's alone: its id, and what it upgraded."""
    mapping = to_mapping(job)
    spec = mapping["spec"]
    spec.pop("upgrade", None)
    spec["metadata"] = {key: value for key, value in job.metadata.items() if key != JOB_ID}
    mapping["spec"] = {key: value for key, value in spec.items() if value not in ([], {})}
    return yaml_of(mapping)
