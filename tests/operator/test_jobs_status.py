"""The status says what there is, keeps what was, and is written only when it differs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.log.memory_log import MemoryLog

from onyx.ids import JobId
from onyx.model.crd.status import CONDITIONS, PHASES
from onyx.model.declaration import Declaration
from onyx.model.job import CatalogEntry, Job
from onyx_operator.jobs.controller import troubles
from onyx_operator.jobs.observed import JobObservation, observed
from onyx_operator.jobs.plan import JobPlan, plan
from onyx_operator.jobs.record import SubmissionRecord, job_id, read_record
from onyx_operator.jobs.spec import Spec
from onyx_operator.jobs.status import news, status
from onyx_operator.logs.documents import READ_MAX, Frontiers
from onyx_operator.logs.state import JobLag, Log, LogJob, Trouble, UpgradeVerdict
from onyx_operator.work_queue import ObjectKey

UID = "6f8b3cf0-0000-4000-8000-000000000001"
JOB = Job("job", (("read", "write"),), (CatalogEntry("read", "input", 10),))
SPEC = Spec("default", "job", UID, 3, job=JOB, digest="digest")
ID = job_id(UID, "digest", 0, 0)
RECORD = SubmissionRecord(ID, "digest", submitted_at="2001-09-09T01:46:00Z")
RUNNING = LogJob("live", tasks=(("read", 2), ("write", 1)), required=2, partitions=4, completed=70)


def reported(job: LogJob | None, before: dict[str, Any] | None = None, now_s: float = 1e9) -> Any:
    log = Trouble("LogUnreachable", "no answer") if job is None else Log(9, {ID: job})
    seen = observed(SPEC, now_s, RECORD, log, before=before or {})
    return shown(seen)


def shown(seen: JobObservation) -> dict[str, Any]:
    return status(seen, plan(seen))


def truths(found: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in found["conditions"]}


def test_phases_and_conditions_are_those_of_the_schema() -> None:
    for job in (RUNNING, LogJob("completed"), LogJob("killed"), LogJob("live"), None):
        found = reported(job)
        assert found["phase"] in PHASES
        assert [each["type"] for each in found["conditions"]] == list(CONDITIONS)
        assert {each["observedGeneration"] for each in found["conditions"]} == {3}


def test_a_running_job_is_told_with_its_peers() -> None:
    found = reported(RUNNING)
    assert found["peers"] == {"allocated": 3, "required": 2}
    assert found["tasks"] == [{"name": "read", "peers": 2}, {"name": "write", "peers": 1}]
    assert found["progress"] == {"partitions": 4, "exhausted": 0, "completed": 70}
    assert truths(found)["Running"] == "True"


def test_a_task_that_does_not_advance_is_told_in_a_condition_and_in_the_message() -> None:
    found = reported(replace(RUNNING, stalled="task write (peer 12), since then: the disk is full"))
    assert found["phase"] == "Running"
    assert found["message"].endswith("task write (peer 12), since then: the disk is full")
    (advancing,) = [each for each in found["conditions"] if each["type"] == "Advancing"]
    assert (advancing["status"], advancing["reason"]) == ("False", "Stalled")
    assert advancing["message"].startswith("task write")
    assert truths(reported(RUNNING))["Advancing"] == "True"
    assert truths(reported(LogJob("live", suspended=True)))["Advancing"] == "False"


def test_the_same_again_is_the_same_status() -> None:
    first = reported(RUNNING)
    assert reported(RUNNING, first, now_s=1e9 + 500) == first


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = reported(RUNNING)
    later = reported(LogJob("completed"), first, now_s=1e9 + 60)
    times = {each["type"]: each["lastTransitionTime"] for each in later["conditions"]}
    assert times["Validated"] == "2001-09-09T01:46:40Z"
    assert times["Completed"] == "2001-09-09T01:47:40Z"
    assert later["finishedAt"] == "2001-09-09T01:47:40Z"


def test_progress_never_falls_and_stays_while_the_log_is_lost() -> None:
    first = reported(RUNNING)
    fewer = reported(replace(RUNNING, completed=10), first)
    assert fewer["progress"]["completed"] == 70
    lost = reported(None, first)
    assert lost["progress"] == first["progress"]
    assert lost["peers"] == first["peers"]
    assert truths(lost)["ClusterReady"] == "False"
    assert truths(lost)["Running"] == "Unknown"


def test_without_its_cluster_a_job_has_no_peers() -> None:
    gone = Trouble("ClusterNotFound", "there is no OnyxCluster onyx", without_workers=True)
    before = reported(RUNNING)
    found = shown(observed(SPEC, 1e9, replace(RECORD, phase=before["phase"]), gone, before=before))

    assert (found["phase"], found["reason"]) == ("Waiting", "ClusterNotFound")
    assert found["peers"] == {"allocated": 0, "required": 2}
    assert "tasks" not in found
    assert found["progress"] == before["progress"]
    assert truths(found)["Running"] == truths(found)["Allocated"] == "False"


LAG = JobLag(1_000, None, 60, 50, 250)


def lagging(lag: JobLag | None, before: dict[str, Any] | None = None, after_s: float = 0.0) -> Any:
    return reported(replace(RUNNING, lag=lag), before, 1e9 + after_s)


def test_a_job_that_is_behind_says_how_far() -> None:
    assert lagging(LAG)["lag"] == {
        "text": "1,000 (60 s)",
        "segments": 1_000,
        "seconds": 60,
        "segmentsPerSecond": 50,
        "latencyMilliseconds": 250,
        "measuredAt": "2001-09-09T01:46:40Z",
    }
    assert lagging(JobLag(None, 5_000))["lag"]["text"] == "5,000 B"
    assert "text" not in lagging(JobLag(per_s=3))["lag"]


@pytest.mark.parametrize(
    ("lag", "after_s", "written"),
    [
        (replace(LAG, segments=1_099), 300.0, False),
        (replace(LAG, segments=1_101), 29.0, False),
        (replace(LAG, segments=1_101), 30.0, True),
        (replace(LAG, segments=899), 30.0, True),
        (replace(LAG, per_s=0), 30.0, True),
        (replace(LAG, latency_ms=None), 30.0, True),
        (replace(LAG, latency_ms=None), 29.0, False),
        (replace(LAG, segments=0), 1.0, True),
        (replace(LAG, segments=1_101), -5.0, True),
    ],
)
def test_a_lag_is_written_anew_when_it_is_worth_it(
    lag: JobLag, after_s: float, written: bool
) -> None:
    first = lagging(LAG)
    assert (lagging(lag, first, after_s)["lag"] != first["lag"]) is written


def test_a_job_that_begins_to_be_behind_says_so_at_once() -> None:
    first = lagging(replace(LAG, segments=0))
    assert lagging(LAG, first, 1.0)["lag"]["segments"] == 1_000


def test_what_is_not_known_any_more_is_not_said() -> None:
    first = lagging(LAG)
    assert "lag" not in lagging(None, first)
    assert "lag" not in reported(None, first)
    assert "lag" not in reported(LogJob("completed"), first)


@pytest.mark.parametrize("old", ["x", {"segments": "many", "measuredAt": 5}, {}])
def test_a_lag_that_somebody_has_written_into_the_status_does_not_stay(old: Any) -> None:
    first = lagging(LAG)
    assert lagging(LAG, first | {"lag": old})["lag"] == first["lag"]


def messages(found: Any) -> list[str]:
    return [found["message"], *(each["message"] for each in found["conditions"])]


def test_one_condition_says_why_and_others_point_to_it() -> None:
    waiting = reported(LogJob("live", waiting_for="needs 2 peers; the cluster has none"))
    assert sum("needs 2 peers" in each for each in messages(waiting)) == 2
    assert messages(waiting).count("see condition Allocated") == 2
    failed = reported(LogJob("killed", failure="task read: boom"))
    assert sum("boom" in each for each in messages(failed)) == 2
    assert messages(failed).count("see condition Failed") == 4
    lost = reported(None)
    assert sum("no answer" in each for each in messages(lost)) == 2


def test_all_problems_of_a_spec_are_listed_once() -> None:
    wrong = replace(
        SPEC, job=None, problem="spec.a: is wrong\nspec.b: too", problem_reason="InvalidSpec"
    )
    found = shown(observed(wrong, 1e9, SubmissionRecord(), Log(9, {})))
    assert found["message"] == "spec.a: is wrong; condition Validated lists more problems"
    assert sum("spec.b" in each for each in messages(found)) == 1
    assert sum("spec.a" in each for each in messages(found)) == 3


def test_an_invalid_job_has_failed_and_a_wait_for_it_ends() -> None:
    wrong = replace(SPEC, job=None, problem="is wrong", problem_reason="InvalidSpec")
    for log in (Log(9, {}), Trouble("ClusterNotFound", "there is none", without_workers=True)):
        found = shown(observed(wrong, 1e9, SubmissionRecord(), log))
        assert found["phase"] == "Invalid"
        assert truths(found)["Failed"] == "True"
        assert truths(found)["Completed"] == "False"


@pytest.mark.parametrize(
    ("missed_s", "wait_s"), [(0.0, 1.0), (-5.0, 1.0), (3.0, 3.0), (20.0, 20.0), (9e9, 60.0)]
)
def test_a_missing_job_file_is_looked_for_at_growing_intervals(
    missed_s: float, wait_s: float
) -> None:
    missing = replace(SPEC, job=None, problem="is not there", problem_reason="JobRefNotFound")
    for record, log in ((SubmissionRecord(), Log(9, {})), (RECORD, Log(9, {ID: RUNNING}))):
        seen = observed(missing, 1e9, record, log, invalid_s=missed_s)
        assert plan(seen).again_in_s == wait_s
    wrong = replace(missing, problem_reason="InvalidSpec")
    assert plan(observed(wrong, 1e9, SubmissionRecord(), Log(9, {}))).again_in_s is None


DIES = "worker processes die: 2 for want of memory"


def test_a_job_whose_workers_die_does_not_merely_run() -> None:
    dying = replace(RUNNING, deaths=DIES, deaths_reason="OutOfMemory")
    found = reported(dying)
    assert (found["phase"], found["reason"]) == ("Running", "OutOfMemory")
    assert found["message"] == f"3 peers work on it; {DIES}"
    assert truths(found)["Advancing"] == "True"
    halted = reported(replace(dying, halted=True))
    assert truths(halted)["Advancing"] == "False"
    (event,) = news(reported(RUNNING), halted)
    assert (event.reason, event.warning) == ("OutOfMemory", True)
    starting = reported(replace(dying, starting=True))
    assert starting["message"] == f"its peers are getting ready; {DIES}"
    waiting = reported(LogJob("live", waiting_for="needs 2 peers", deaths=DIES))
    assert waiting["message"] == f"needs 2 peers; {DIES}"
    stalled = reported(replace(dying, stalled="task write"))
    assert stalled["message"] == f"does not advance: task write; {DIES}"


def test_a_job_that_goes_on_after_a_wrong_edit_has_not_failed() -> None:
    wrong = replace(SPEC, job=None, problem="is wrong", problem_reason="InvalidSpec")
    found = shown(observed(wrong, 1e9, RECORD, Log(9, {ID: RUNNING})))
    assert truths(found)["Validated"] == truths(found)["Failed"] == "False"
    assert truths(found)["Running"] == "True"


def test_a_long_message_is_cut() -> None:
    wrong = replace(SPEC, job=None, problem="x" * 9_999, problem_reason="InvalidSpec")
    seen = observed(wrong, 1e9, SubmissionRecord(), Log(9, {}))
    found = status(seen, JobPlan((), "Invalid", "InvalidSpec", wrong.problem))
    assert len(found["message"]) == 2_000
    assert max(len(each["message"]) for each in found["conditions"]) == 2_000


def test_a_record_that_does_not_follow_from_the_uid_is_none() -> None:
    found = reported(RUNNING)
    metadata = {"uid": UID, "name": "job", "namespace": "default"}
    assert read_record({"metadata": metadata, "status": found}).job_id == ID
    for forged in ({"jobId": "x"}, {"attempt": 1}, {"jobHash": None}):
        body = {"metadata": metadata, "status": {**found, **forged}}
        assert read_record(body).job_id is None, forged
    assert read_record({"metadata": metadata, "status": "nonsense"}) == SubmissionRecord()


def test_the_former_job_is_told_and_read_again_only_if_it_follows_from_the_uid() -> None:
    old = SubmissionRecord(job_id(UID, "before", 0, 3), "before", 0, 3, 2)
    found = shown(observed(SPEC, 1e9, replace(RECORD, upgraded_from=old), Log(9, {ID: RUNNING})))
    metadata = {"uid": UID, "name": "job", "namespace": "default"}
    assert read_record({"metadata": metadata, "status": found}).upgraded_from == old
    for forged in ({"jobId": "x"}, {"attempt": 4}, {"jobHash": "other"}):
        body = {
            "metadata": metadata,
            "status": {**found, "upgradedFrom": found["upgradedFrom"] | forged},
        }
        read = read_record(body)
        assert (read.job_id, read.upgraded_from) == (ID, None), forged


def test_a_refused_upgrade_is_told_as_an_invalid_spec_of_a_job_that_goes_on() -> None:
    edited = replace(
        SPEC, digest="other", declaration=Declaration(upgrade_policy="KeepState"), generation=4
    )
    refused = UpgradeVerdict(ID, refusal="spec.upgrade.windows.w: needs an answer\nmore")
    found = shown(
        observed(
            edited, 1e9, RECORD, Log(9, {ID: RUNNING}), upgrade=refused, before=reported(RUNNING)
        )
    )
    (validated,) = (each for each in found["conditions"] if each["type"] == "Validated")
    assert (validated["status"], validated["reason"]) == ("False", "UpgradeRefused")
    assert validated["message"] == refused.refusal
    assert (found["phase"], found["reason"]) == ("Running", "UpgradeRefused")
    assert truths(found)["Running"] == "True"
    assert truths(found)["Failed"] == "False"
    assert found["peers"] == {"allocated": 3, "required": 2}


def test_a_submission_that_was_given_up_is_no_job() -> None:
    found = shown(
        observed(SPEC, 1e9, SubmissionRecord(ID, "digest"), Log(9, {ID: LogJob("fenced")}))
    )
    assert not {"submittedAt", "finishedAt", "peers"} & set(found)
    assert truths(found)["Submitted"] == "False"


def test_frontiers_are_read_a_limited_number_at_a_time() -> None:
    log = MemoryLog().client()
    partitions = READ_MAX + 10
    for number in range(partitions):
        data = msgspec.json.encode({"position": 2, "cursor": [0, 0], "exhausted": False})
        log.put_document(f"frontier/job/{number}", data, None)
    frontiers, job = Frontiers(), JobId("job")
    assert frontiers.completed(job) is None
    assert frontiers.read(log, job, range(partitions))
    assert frontiers.completed(job) == 2 * READ_MAX
    assert frontiers.read(log, job, range(partitions))
    assert frontiers.completed(job) == 2 * partitions
    assert not frontiers.read(log, job, range(partitions)), "nothing is new"
    log.close()


@pytest.mark.parametrize(
    "reason",
    [
        "ClusterNotFound", "ClusterRefused", "ClusterNotReady", "TooManyClusters",
        "LogUnreachable", "TenancyTaken",
    ],
)  # fmt: skip
def test_an_event_about_a_log_that_a_job_does_not_get_is_a_warning(reason: str) -> None:
    trouble = Trouble(reason, "why")
    seen = observed(SPEC, 1e9, RECORD, trouble)

    (event,) = news(reported(RUNNING), status(seen, plan(seen)))

    assert (event.reason, event.warning) == (reason, True)


def test_what_alerts_ask_for_follows_from_the_objects_alone() -> None:
    """Nothing is missed while no operator was there, and clusters without replicas are no news."""

    def job(phase: str, cluster: str = "onyx", **more: str) -> dict[str, Any]:
        spec, status = {"clusterRef": cluster}, {"phase": phase, **more}
        return {"metadata": {"namespace": "n", "name": "j"}, "spec": spec, "status": status}

    def cluster(replicas: int | None, ready: int) -> dict[str, Any]:
        spec = {} if replicas is None else {"replicas": replicas}
        return {"spec": spec, "status": {"readyReplicas": ready}}

    jobs = [
        job("Waiting"),
        job("Waiting", "none"),
        job("Failed", finishedAt="1970-01-01T00:00:07Z"),
        job("Failed", finishedAt="1970-01-01T00:01:00Z"),
        job("Completed", finishedAt="1970-01-01T00:02:00Z"),
        job("Failed", finishedAt="yesterday"),
        {"metadata": {"namespace": "n", "name": "new"}, "spec": {}},
    ]
    clusters = {
        ObjectKey("n", "onyx"): cluster(None, 0),
        ObjectKey("n", "none"): cluster(0, 0),
        ObjectKey("n", "well"): cluster(2, 1),
        ObjectKey("n", "new"): {"spec": {}},
    }
    assert troubles(jobs, clusters) == (1, 60.0, 1)
    assert troubles([], {}) == (0, 0.0, 0)
