"""An edited OnyxJob with upgradePolicy KeepState goes on from the state of the old job: the whole
operator, a fake API, pretended workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.operator.declaring import condition, declare, phase, reported, started, submitted
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, job
from tests.operator.workers import Workers
from tests.support.log.submissions import submit_job

from onyx.ids import GroupId, JobId
from onyx.replica.state import Replica
from onyx_operator.jobs.spec import read_spec
from onyx_operator.logs import upgrading
from onyx_operator.logs.state import UpgradeVerdict

ANSWER = {"tasks": {"read": "initialize"}}
ENDLESS = [
    {"name": "read", "type": "input", "plugin": "m:feed"},
    {"name": "write", "type": "output", "plugin": "files",
     "options": {"path": "/data/out", "format": "jsonl"}},
]  # fmt: skip


@pytest.fixture
def eager(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Looks soon whether an upgrade that was refused can be taken now."""
    monkeypatch.setattr(upgrading, "AGAIN_S", 0.05)
    return operator


def catalog(version: int = 1, generated: bool = False) -> list[dict[str, Any]]:
    """Of the job; `generated`: it reads what no other input has read before."""
    found: list[dict[str, Any]] = job(version=version)["spec"]["catalog"]
    if generated:
        found[0] |= {"plugin": "generator", "options": {"segments": 10}}
    return found


def after(old: str) -> Callable[[Any], bool]:
    """Whether a job runs upgrades another one."""

    def holds(found: Any) -> bool:
        known = found["status"].get("upgradedFrom", {}).get("jobId")
        return phase("Running", "Running")(found) and known == old

    return holds


def take_over(logs: Logs, job_id: str) -> None:
    """What workers do last of it: a document for each partition of the inputs."""
    client = logs.log().client()
    client.put_document(f"frontier/{job_id}/0", b'{"position": 7}', None)
    client.close()


def test_an_edit_upgrades_the_old_job(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", after(first))
    second = found["status"]["jobId"]
    written = [(each.NAME, each.spec.upgrades) for each in logs.commands("submit-job")]
    assert not logs.commands("kill-job")
    assert written == [("submit-job", None), ("submit-job", first)]
    assert submitted(logs) == [first, second]
    assert logs.replica().killed_jobs == (first,)
    assert (found["status"]["attempt"], found["status"]["firstAttempt"]) == (1, 1)
    messages = [each["message"] for each in api.list("events") if each["reason"] == "Submitted"]
    assert f"job {second} is in the log, upgrades job {first}" in messages


def test_an_upgrade_that_would_lose_state_is_refused_until_something_is_said(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    declare(api, catalog=catalog(generated=True))
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "UpgradeRefused"))
    status = found["status"]
    assert (status["phase"], status["jobId"]) == ("Running", first)
    assert "the job of the previous spec goes on" in status["message"]
    assert "spec.upgrade.tasks.read: needs an answer" in status["message"]
    assert condition("Failed", "False")(found)
    reported(api, "UpgradeRefused")

    declare(api, catalog=catalog())
    found = api.wait_for("onyxjobs", "job", condition("Validated", "True"))
    assert phase("Running", "Running")(found)
    assert submitted(logs) == [first]

    declare(api, catalog=catalog(generated=True), upgrade=ANSWER)
    found = api.wait_for("onyxjobs", "job", after(first))
    second = found["status"]["jobId"]
    messages = [each["message"] for each in api.list("events")]
    assert any("input read is initialized" in each for each in messages)

    declare(api, upgrade=None)
    found = api.wait_for("onyxjobs", "job", condition("Validated", "True"))
    assert found["status"]["jobId"] == second
    assert submitted(logs) == [first, second]


def test_an_edit_that_workers_cannot_run_stops_nothing_until_others_come(
    api: FakeApi, logs: Logs, workers: Workers, eager: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    workers.problems = ["task read: there is no m:gone"]
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", condition("Validated", "False", "UpgradeRefused"))
    assert (found["status"]["phase"], found["status"]["jobId"]) == ("Running", first)
    assert "there is no m:gone (the worker)" in found["status"]["message"]
    assert submitted(logs) == [first]
    workers.problems = []
    with Workers(logs.log(), group="newer"):
        api.wait_for("onyxjobs", "job", after(first))


def test_an_edit_waits_for_the_answers_of_workers(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    workers.problems = None
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", phase("Running", "SpecChanged"))
    assert f"job {first} goes on until all workers have said" in found["status"]["message"]
    assert submitted(logs) == [first]


def test_an_edit_that_would_have_no_peers_waits_for_more(
    api: FakeApi, logs: Logs, workers: Workers, eager: Operator
) -> None:
    """Four peers are there; the new one needs five."""
    first = started(api, upgradePolicy="KeepState")
    wanted = catalog(20)
    wanted[0]["minPeers"] = 7
    declare(api, catalog=wanted)
    found = api.wait_for("onyxjobs", "job", phase("Running", "SpecChanged"))
    assert "the new one has no peers" in found["status"]["message"]
    assert submitted(logs) == [first]
    with Workers(logs.log(), group="newer", peers=8):
        api.wait_for("onyxjobs", "job", after(first))


def test_without_workers_nothing_is_asked_and_nothing_given_up() -> None:
    replica = Replica(jobs=(JobId("a"),))
    entry = submit_job(id="b", digest="d", upgrades="a")
    judged, question = upgrading.Checks().judge(
        UpgradeVerdict(JobId("a")), JobId("a"), entry, replica, 0.0
    )
    assert question is None
    assert "no worker is there" in judged.waits


def test_workers_that_did_not_answer_are_asked_again() -> None:
    replica = Replica(jobs=(JobId("a"),), groups=(GroupId("g"),))
    entry = submit_job(id="b", digest="d", upgrades="a")
    asked = upgrading.Checks()
    put = [
        asked.judge(UpgradeVerdict(JobId("a")), JobId("a"), entry, replica, now_s)[1] is not None
        for now_s in (0.0, 1.0, 29.0, 31.0, 32.0)
    ]
    assert put == [True, False, False, True, False]


def test_a_job_that_has_failed_is_mended_by_an_edit(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    workers.fail(first, "boom")
    api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    declare(api, catalog=catalog(20))
    found = api.wait_for("onyxjobs", "job", after(first))
    assert logs.replica().upgrades(found["status"]["jobId"]) == first


def test_a_retry_goes_on_from_the_attempt_before(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    policy = {"retries": 1, "backoffSeconds": 0}
    first = started(api, upgradePolicy="KeepState", failurePolicy=policy)
    workers.fail(first, "boom")
    found = api.wait_for("onyxjobs", "job", after(first))
    second = found["status"]["jobId"]
    assert logs.replica().upgrades(second) == first
    workers.fail(second, "boom")
    found = api.wait_for("onyxjobs", "job", condition("Failed", "True", "TaskFailed"))
    assert "(after 1 retries)" in found["status"]["message"]


def test_an_edit_waits_for_a_job_that_is_carrying_over_state(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState")
    declare(api, catalog=catalog(20))
    second = api.wait_for("onyxjobs", "job", after(first))["status"]["jobId"]
    declare(api, catalog=catalog(30))
    found = api.wait_for("onyxjobs", "job", phase("Running", "SpecChanged"))
    assert f"is carrying over the state of job {first}" in found["status"]["message"]
    take_over(logs, second)
    found = api.wait_for("onyxjobs", "job", after(second))
    assert logs.replica().upgrades(found["status"]["jobId"]) == second


def test_a_busy_job_on_peers_comes_to_rest_before_it_is_one_on_spark(
    api: FakeApi, logs: Logs, operator: Operator
) -> None:
    api.patch("onyxclusters", "onyx", {"spec": {"sparkMemory": "1Gi"}})
    with Workers(logs.log(), tags=("spark",)) as workers:
        workers.restless = True
        first = started(api, upgradePolicy="KeepState", catalog=ENDLESS)
        declare(api, engine="spark")

        def waits(found: Any) -> bool:
            return "segments of read are in flight" in found["status"]["message"]

        assert phase("Running", "SpecChanged")(api.wait_for("onyxjobs", "job", waits))
        assert submitted(logs) == [first]
        declare(api, engine="peers")
        api.wait_for("onyxjobs", "job", phase("Running", "Running"))
        workers.restless = False
        declare(api, engine="spark")
        api.wait_for("onyxjobs", "job", after(first))
    names = ["submit-job", "pause-job", "resume-job", "pause-job", "submit-job"]
    assert [each.NAME for each in logs.commands() if each.NAME in names] == names


def test_what_a_first_version_answers_is_ignored(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    first = started(api, upgradePolicy="KeepState", upgrade=ANSWER)
    (submission,) = logs.commands("submit-job")
    assert submission.spec.upgrades is None
    client = logs.log().client()
    stored = client.get_chunk(logs.replica().digest_of(first))
    client.close()
    assert b"upgrade" not in stored


def test_answers_make_no_other_job_of_it() -> None:
    def digest(**spec: Any) -> str:
        body = job(upgradePolicy="KeepState", **spec)
        found = read_spec({**body, "metadata": {**body["metadata"], "uid": "u"}})
        assert not found.problem
        return found.digest

    assert digest(upgrade=ANSWER) == digest()
    assert digest(upgrade={"from": "other", **ANSWER}) != digest()


def test_an_upgrade_of_a_job_file_is_one_as_well(
    api: FakeApi, logs: Logs, workers: Workers, operator: Operator
) -> None:
    for name, size in (("one", 10), ("two", 20)):
        text = str(job(version=size, upgradePolicy="KeepState", upgrade=ANSWER))
        head = {"apiVersion": "v1", "kind": "ConfigMap"}
        metadata = {"name": name, "namespace": "default"}
        api.create({**head, "metadata": metadata, "data": {"job.yaml": text}})
    spec = {"upgradePolicy": "KeepState", "jobRef": {"configMap": "one"}}
    api.create({**job(), "spec": spec})
    first = api.wait_for("onyxjobs", "job", phase("Running", "Running"))["status"]["jobId"]
    declare(api, jobRef={"configMap": "two"})
    api.wait_for("onyxjobs", "job", after(first))
