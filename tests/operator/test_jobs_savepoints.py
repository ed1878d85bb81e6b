"""An OnyxJob whose first version begins with a savepoint, which only workers see: the whole
operator, a fake API, pretended workers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.operator.declaring import condition, declare, phase, reported, started, submitted
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, job
from tests.operator.test_jobs_upgrades import after, catalog, eager, take_over
from tests.operator.workers import Workers

from onyx.ids import JobId
from onyx.replica.commands import LoadJob
from onyx.replica.commands.load_job import loaded_for
from onyx_operator.jobs.spec import read_spec
from onyx_operator.logs import upgrading

__all__ = ["eager"]
NOON = "s3://savepoints/noon"
SAVED: dict[str, Any] = {"upgradePolicy": "KeepState", "upgrade": {"savepoint": NOON}}
DAMAGED = f"{NOON}/manifest.json is damaged"


def load(logs: Logs, job_id: str, whole: bool = True) -> JobId:
    """What the first peer of a job does about its savepoint."""
    spec = replace(logs.replica().spec(JobId(job_id)), upgrades=None)
    client, loaded = logs.log().client(), loaded_for(JobId(job_id))
    entry = LoadJob(id=loaded, spec=spec, place=NOON, origin=JobId("saved"))
    client.append(entry)
    if whole:
        client.append(replace(entry, whole=True))
    client.close()
    return loaded


def savepoint_in(found: Any) -> bool:
    return bool(found["status"].get("savepoint") == NOON)


def test_the_first_version_begins_with_it_and_an_edit_upgrades_that(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, **SAVED)
    assert [each.NAME for each in logs.commands("check-job")] == ["check-job"]
    assert logs.replica().upgrades(JobId(first)) == loaded_for(JobId(first))
    messages = [each["message"] for each in api.list("events") if each["reason"] == "Submitted"]
    assert messages == [f"job {first} is in the log, begins with savepoint {NOON}"]
    load(logs, first)
    api.wait_for("onyxjobs", "job", savepoint_in)
    take_over(logs, first)
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", after(first))
    assert logs.replica().upgrades(found["status"]["jobId"]) == first
    assert "savepoint" not in found["status"]


def test_one_that_workers_refuse_is_a_condition_until_it_is_mended(
    api: FakeApi,
    logs: Logs,
    workers: Workers,
    eager: Operator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upgrading, "ANSWER_TIMEOUT_S", 0.1)
    workers.problems = [DAMAGED]
    api.create(job(**SAVED))
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "SavepointRefused"))
    assert found["status"]["phase"] == "Pending"
    assert DAMAGED in found["status"]["message"]
    reported(api, "SavepointRefused")
    assert submitted(logs) == []
    workers.problems = []
    api.wait_for("onyxjobs", "job", phase("Running", "Running"))
    assert len(submitted(logs)) == 1


def test_an_edit_of_a_job_whose_savepoint_is_not_loaded_begins_with_it_again(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, **SAVED)
    load(logs, first, whole=False)
    workers.fail(first, DAMAGED)
    api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    declare(api, catalog=catalog(20))
    second = api.wait_for("onyxjobs", "job", after(first))["status"]["jobId"]
    assert logs.replica().upgrades(second) == loaded_for(second)


def test_without_the_key_such_an_edit_is_refused(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, **SAVED)
    workers.fail(first, DAMAGED)
    api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    declare(api, catalog=catalog(20), upgrade=None)
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "UpgradeRefused"))
    assert "has not begun with its savepoint: give spec.upgrade" in found["status"]["message"]
    assert submitted(logs) == [first]


def test_an_edit_of_a_job_that_has_failed_with_the_whole_savepoint_goes_on_from_that(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, **SAVED)
    loaded = load(logs, first)
    workers.fail(first, "boom")
    api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    client = logs.log().client()
    manifest = client.get_chunk(logs.replica().digest_of(JobId(first)))
    assert NOON.encode() in manifest
    client.close()
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", after(first))
    assert logs.replica().upgrades(found["status"]["jobId"]) == loaded


def test_taking_the_key_out_makes_no_other_job_of_it() -> None:
    def digest(**spec: Any) -> str:
        body = job(**{**SAVED, **spec})
        return read_spec({**body, "metadata": {**body["metadata"], "uid": "u"}}).digest

    assert digest() == digest(upgrade={})
