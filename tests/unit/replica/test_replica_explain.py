import pytest
from tests.support.log.replica_log import ReplicaLog

from onyx.replica.commands import (
    AddVirtualPeer,
    DrainJob,
    GroupLeaveCluster,
    KillJob,
    RegisterPartitions,
    SuspendJob,
)
from onyx.replica.scheduling.explain import displaced, why_waiting


def test_a_job_that_runs_has_nothing_to_wait_for():
    assert why_waiting(ReplicaLog().join("g", peers=3).submit().new, "j") is None


@pytest.mark.parametrize("end", ["kill-job", "unknown"])
def test_a_job_that_is_not_running_waits_for_nothing(end):
    log = ReplicaLog().submit()
    if end == "kill-job":
        log.tell(KillJob(job="j"))
    assert why_waiting(log.new, "j" if end == "kill-job" else "other") is None


def test_too_few_peers_are_told_by_task():
    log = ReplicaLog().join("g", peers=3).submit(min_required_peers={"parse": 2})
    reported = "needs 4 peers (read 1, parse 2, write 1); the cluster has 3, 3 of them free"
    assert why_waiting(log.new, "j") == reported


def test_busy_peers_are_not_free():
    log = (
        ReplicaLog().join("g", peers=4).submit("first").submit("j", min_required_peers={"parse": 5})
    )
    assert why_waiting(log.new, "j") == (
        "needs 7 peers (read 1, parse 5, write 1); the cluster has 4, 0 of them free"
    )


def test_a_cluster_without_workers_is_told():
    reported = "needs 3 peers (read 1, parse 1, write 1); the cluster has none"
    assert why_waiting(ReplicaLog().submit().new, "j") == reported


def test_a_job_whose_peers_were_given_to_others_is_displaced():
    log = ReplicaLog().join("g", peers=4).submit("j", min_required_peers={"parse": 2})
    assert not displaced(log.new, "j")
    log.submit("new", "read write", priority=1)
    assert displaced(log.new, "j")
    assert why_waiting(log.new, "j") == (
        "needs 4 peers (read 1, parse 2, write 1); the cluster has 4, 0 of them free; "
        "it ran until the job scheduler gave its peers to other jobs"
    )
    log.tell(KillJob(job="new"))
    assert not displaced(log.new, "j")


def test_a_job_that_never_ran_or_lost_its_workers_or_is_suspended_is_not_displaced():
    log = ReplicaLog().join("g", peers=3).submit("first").submit("j")
    assert not displaced(log.new, "j")
    assert not displaced(log.new, "unknown")
    log.tell(GroupLeaveCluster(id="g"))
    assert not displaced(log.new, "first")
    log.join("h", peers=3)
    log.tell(SuspendJob(job="first"))
    assert not displaced(log.new, "first")


@pytest.mark.parametrize("dies", ["lost", "other"])
def test_a_job_whose_peers_went_when_a_worker_died_is_not_displaced(dies):
    log = ReplicaLog().join("a", "b", "c", peers=2).submit("first").submit("second")
    places = {job: log.new.run(job).allocation for job in ("first", "second")}
    assert all(places.values())
    loses = "second" if dies == "lost" else "first"
    group = log.new.groups_reverse_index[next(iter(places[loses].values()))[0]]
    log.tell(GroupLeaveCluster(id=group))
    assert not log.new.run("second").allocation
    assert not displaced(log.new, "second"), "a worker has died, and nobody took its place"
    assert "until the job scheduler" not in why_waiting(log.new, "second")
    log.join("d", peers=2)
    assert log.new.run("second").allocation
    log.submit("third", "read write")
    log.submit("fourth", "read write")
    assert displaced(log.new, "second") == (not log.new.run("second").allocation)


def test_tags_that_nobody_has_are_told_first():
    log = ReplicaLog().join("g", peers=9).submit(required_tags={"parse": ["gpu"]})
    assert why_waiting(log.new, "j") == "task parse needs a peer with tags [gpu]; no peer has them"


def test_spark_that_no_worker_has():
    log = ReplicaLog().join("g", peers=9).submit(required_tags={"parse": ["spark"]})
    assert why_waiting(log.new, "j") == (
        "task parse needs a peer with tags [spark]; no peer has them "
        "(spark: workers with PySpark have it, by pip install 'onyx-on-kubernetes[spark]', or by "
        "the image onyx-worker:VERSION-spark)"
    )


def test_tags_that_too_few_have():
    log = ReplicaLog().join("g", peers=9)
    log.tell(AddVirtualPeer(id="strong", group_id="g", tags=("ssd", "gpu")))
    log.submit(required_tags={"parse": ["gpu"]}, min_required_peers={"parse": 2})
    assert why_waiting(log.new, "j") == "task parse needs 2 peers with tags [gpu]; 1 has them"


def test_behind_a_job_that_is_greedy():
    log = (
        ReplicaLog("greedy")
        .join("g", peers=9)
        .submit("first", saturation=3, task_saturation={"read": 1, "parse": 1, "write": 1})
        .submit()
    )
    assert why_waiting(log.new, "j") == (
        "needs 3 peers (read 1, parse 1, write 1); the cluster has 9, 6 of them free, "
        "but the greedy job scheduler gives all peers to the first job"
    )


def test_a_suspended_job_says_how_it_goes_on():
    log = ReplicaLog().join("g", peers=3).submit().ready()
    log.tell(RegisterPartitions(job="j", task="read", count=1, digest="d"))
    log.tell(SuspendJob(job="j"))
    assert why_waiting(log.new, "j") == "`onyx resume j` lets it go on"
    log.tell(DrainJob(job="j"))
    reported = "`onyx resume j` lets it finish what is pending"
    assert why_waiting(log.new, "j") == reported


def test_a_suspended_job_is_not_in_the_way_of_a_greedy_scheduler():
    log = ReplicaLog("greedy").join("g", peers=3).submit("first").submit()
    log.tell(SuspendJob(job="first"))
    assert why_waiting(log.new, "j") is None


def test_a_job_whose_share_is_too_small():
    log = ReplicaLog("percentage").join("g", peers=9)
    log.submit("other", percentage=80).submit(percentage=20)
    assert why_waiting(log.new, "j") == (
        "needs 3 peers (read 1, parse 1, write 1); the cluster has 9, 0 of them free, "
        "but its percentage is 20: the percentage job scheduler gives it that share of 9 peers"
    )


def test_a_job_beyond_a_hundred_percent():
    log = ReplicaLog("percentage").join("g", peers=9)
    log.submit("other", percentage=70).submit("another", percentage=30).submit(percentage=20)
    assert why_waiting(log.new, "j") == (
        "needs 3 peers (read 1, parse 1, write 1); the cluster has 9, 0 of them free, "
        "but its percentage and those of the jobs before it make up 120: beyond 100 the percentage "
        "job scheduler gives no peers until one of those has ended"
    )


def test_a_task_whose_share_is_too_small():
    log = ReplicaLog().join("g", peers=4)
    log.submit(task_scheduler="percentage", task_percentages={"read": 90, "parse": 5, "write": 5})
    assert why_waiting(log.new, "j") == (
        "needs 3 peers (read 1, parse 1, write 1); the cluster has 4, 4 of them free, "
        "but by their percentages (read 90, parse 5, write 5) some task would have too few"
    )
