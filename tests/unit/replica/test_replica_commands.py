import pkgutil
import re

import pytest
from immutables import Map
from tests.support.hostile_names import KNOWN
from tests.support.log.invariants import violations
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import by_job

from onyx.replica import canonical, commands
from onyx.replica.commands import (
    COMMANDS,
    AddVirtualPeer,
    ExhaustInput,
    Gc,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
    RegisterPartitions,
    SealOutput,
)
from onyx.replica.commands.signal_ready import signal
from onyx.replica.members import LEFT_GROUPS_KEPT_MAX


def test_every_command_is_registered_under_its_own_name():
    modules = {each.name for each in pkgutil.iter_modules(commands.__path__)}
    assert {each.__module__.rpartition(".")[2] for each in COMMANDS.values()} == modules
    assert all(
        re.sub("-(.)", lambda found: found[1].upper(), name.capitalize()) == command.__name__
        for name, command in COMMANDS.items()
    )
    assert list(COMMANDS) == sorted(COMMANDS)


def spec(**more):
    return {"tasks": [{"name": "a"}], "task_scheduler": "balanced", **more}


NAMED = (
    ("submit-job", lambda name: {"id": name, "spec": spec()}),
    ("submit-job", lambda name: {"id": "k", "spec": spec(tasks=[{"name": name}])}),
    ("submit-job", lambda name: {"id": "k", "spec": spec(upgrades=name)}),
    ("kill-job", lambda name: {"job": name}),
    ("seal-output", lambda name: {"job": "j", "task": name}),
    ("prepare-join-cluster", lambda name: {"joiner": name}),
    ("add-virtual-peer", lambda name: {"id": name, "group_id": "g"}),
    ("group-leave-cluster", lambda name: {"id": name}),
)
"""Commands with a name that becomes a part of a path somewhere."""
WITH_DIGEST = (
    ("submit-job", lambda name: {"id": "k", "spec": spec(digest=name)}),
    ("register-partitions", lambda n: {"job": "j", "task": "read", "count": 1, "digest": n}),
)
"""Here an empty text means that there is none."""


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        ("no-such-command", {}),
        ("undecodable", {"reason": "none"}),
        ("kill-job", {}),
        ("kill-job", {"job": 7}),
        ("kill-job", {"job": ""}),
        ("kill-job", {"job": "j" * 257}),
        ("add-virtual-peer", {"id": "p", "group_id": "g", "tags": "gpu"}),
        ("add-virtual-peer", {"id": "p", "group_id": "g", "peer_site": {"address": {}}}),
        ("exhaust-input", {"job": "j", "task": "read", "partitions": [-1]}),
        ("register-partitions", {"job": "j", "task": "read", "count": -1, "digest": "d"}),
        ("submit-job", {"id": "k", "spec": spec(tasks=[])}),
        ("submit-job", {"id": "k", "spec": spec(tasks=[{"name": "a"}, {"name": "a"}])}),
        ("submit-job", {"id": "k", "spec": spec(tasks=["a"])}),
        ("submit-job", {"id": "k", "spec": spec(max_peers=-1)}),
        ("submit-job", {"id": "k", "spec": spec(max_peers="many")}),
        ("submit-job", {"id": "k", "spec": spec(max_peers=float("nan"))}),
        *((fn, args(name)) for name in KNOWN for fn, args in NAMED),
        *((fn, args(name)) for name in filter(None, KNOWN) for fn, args in WITH_DIGEST),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_not_well_formed_is_counted_and_changes_nothing(fn, args):
    log = ReplicaLog().join("g", peers=3).submit()
    before = canonical.to_plain(log.new)
    after = canonical.to_plain(log.tell_raw(fn, **args))
    assert after == before | {"version": before["version"] + 1, "rejected": 1}


def test_keys_of_later_versions_are_ignored():
    log = ReplicaLog().join("g")
    assert log.tell_raw("add-virtual-peer", id="p", group_id="g", colour="blue").peers == ("p",)


def test_a_task_scheduler_of_a_later_version_leaves_its_job_waiting():
    log = ReplicaLog().join("g", peers=3).submit(task_scheduler="of-tomorrow")
    assert (log.new.jobs, by_job(log.new, "allocation")) == (("j",), {})


def test_a_repeat_has_no_effect_and_no_reaction():
    log = ReplicaLog().join("g1")
    log.tell(PrepareJoinCluster(joiner="g2"))
    log.tell(NotifyJoinCluster(observer="g2"), writer="g1", sequence=1)
    assert [each.NAME for each in log.reactions("g2")] == ["accept-join-cluster"]
    before = canonical.to_plain(log.new)
    after = canonical.to_plain(log.tell(NotifyJoinCluster(observer="g2"), writer="g1", sequence=1))
    assert after == before | {"version": before["version"] + 1}
    assert log.reactions("g2") == ()
    assert log.effects("g2") == ()


def test_the_dead_have_no_say():
    log = ReplicaLog().join("g1", "g2", peers=1)
    log.tell(GroupLeaveCluster(id="g2"))
    log.tell(KillJob(job="j"), writer="g2", sequence=99)
    assert log.new.killed_jobs == ()
    assert "g2" not in log.new.last_sequence


def test_a_group_that_was_declared_dead_does_not_come_back_under_its_name():
    log = ReplicaLog().join("g1", "g2")
    log.tell(GroupLeaveCluster(id="g2"))
    log.tell(PrepareJoinCluster(joiner="g2"))
    log.tell(AddVirtualPeer(id="p", group_id="g2"))
    assert log.new.groups == ("g1",)
    assert log.new.groups_reverse_index == Map()


def test_the_dead_are_not_remembered_for_ever():
    log = ReplicaLog().join("g")
    for number in range(LEFT_GROUPS_KEPT_MAX + 5):
        log.tell(GroupLeaveCluster(id=f"dead-{number:05}"))
    assert len(log.new.left) == LEFT_GROUPS_KEPT_MAX
    assert "dead-00000" not in log.new.left
    assert f"dead-{LEFT_GROUPS_KEPT_MAX + 4:05}" in log.new.left
    assert violations(log.new) == []


def test_a_peer_that_restarts_is_announced_again_by_its_group_as_it_was():
    log = ReplicaLog().join("g")
    log.tell(AddVirtualPeer(id="p", group_id="g", peer_site={"address": "h:1"}, tags=("gpu",)))
    log.tell(LeaveCluster(id="p", restarted_id="q", restart=True))
    (again,) = log.reactions("g")
    assert again == AddVirtualPeer(
        id="q", group_id="g", peer_site={"address": "h:1"}, tags=("gpu",)
    )
    assert log.reactions("other") == ()


def test_the_first_registration_of_partitions_wins_and_numbers_go_on_within_the_job():
    log = ReplicaLog().join("g", peers=3).submit(tasks="a b out", inputs=["a", "b"])
    log.tell(RegisterPartitions(job="j", task="b", count=2, digest="first"))
    log.tell(RegisterPartitions(job="j", task="b", count=9, digest="second"))
    log.tell(RegisterPartitions(job="j", task="a", count=3, digest="of-a"))
    found = {task: (p.first, p.count, p.digest) for task, p in log.new.partitions("j").items()}
    assert found == {"b": (0, 2, "first"), "a": (2, 3, "of-a")}


def test_a_job_has_at_most_65_535_partitions():
    log = ReplicaLog().join("g", peers=3).submit(tasks="a b out", inputs=["a", "b"])
    log.tell(RegisterPartitions(job="j", task="a", count=65_535, digest="d"))
    log.tell(RegisterPartitions(job="j", task="b", count=1, digest="d"))
    assert set(log.new.partitions("j")) == {"a"}


def test_a_source_without_partitions_is_exhausted_at_once():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell(RegisterPartitions(job="j", task="read", count=0, digest="d"))
    assert set(log.new.run("j").sealers) == {"write"}


def test_an_input_is_exhausted_when_all_its_partitions_are():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell(ExhaustInput(job="j", task="read", partitions=(0,)))
    log.tell(RegisterPartitions(job="j", task="read", count=2, digest="d"))
    log.tell(ExhaustInput(job="j", task="read", partitions=(1, 7)))
    assert not log.new.run("j").exhausted_inputs
    log.tell(ExhaustInput(job="j", task="read", partitions=(0,)))
    assert set(log.new.run("j").exhausted_inputs) == {"read"}


def test_a_job_completes_with_its_last_output():
    log = ReplicaLog().join("g", peers=4).submit(tasks="in out1 out2", outputs=["out1", "out2"])
    log.tell(ExhaustInput(job="j", task="in"))
    log.tell(SealOutput(job="j", task="out1"))
    assert (log.new.completed_jobs, set(log.new.run("j").sealers)) == ((), {"out2"})
    log.tell(SealOutput(job="j", task="out2"))
    assert (log.new.jobs, log.new.completed_jobs) == ((), ("j",))
    assert not by_job(log.new, "allocation")
    assert set(log.new.peer_state.values()) == {"idle"}


def test_a_sealer_stays_until_it_leaves_its_task():
    log = ReplicaLog().join("g1", "g2", peers=3).submit()
    log.tell(ExhaustInput(job="j", task="read"))
    elected = log.new.run("j").sealers["write"]
    log.tell(AddVirtualPeer(id="late", group_id="g1"))
    assert log.new.run("j").sealers["write"] == elected
    log.tell(LeaveCluster(id=elected))
    after = log.new.run("j").sealers["write"]
    assert after != elected
    assert after in log.new.run("j").allocation["write"]


def test_a_job_that_has_ended_has_one_end():
    log = ReplicaLog().join("g", peers=3).submit()
    log.complete("j")
    log.tell(KillJob(job="j"))
    log.submit()
    assert (log.new.jobs, log.new.completed_jobs, log.new.killed_jobs) == ((), ("j",), ())


def test_a_kill_that_comes_before_the_job_keeps_it_out():
    log = ReplicaLog().join("g", peers=3)
    log.tell(KillJob(job="j"))
    assert log.submit().new.jobs == ()


def test_collection_leaves_nothing_of_jobs_that_have_ended():
    fresh = ReplicaLog().join("g", peers=3)
    log = ReplicaLog().join("g", peers=3).submit("a").submit("b")
    log.tell(KillJob(job="a"))
    log.complete("b")
    log.tell(Gc(id="client"))
    assert not log.new.records
    log.tell(Gc(id="client"))
    kept, wanted = canonical.to_plain(log.new), canonical.to_plain(fresh.new)
    assert kept == wanted | {"version": log.new.version}


def test_collection_forgets_only_what_it_names_and_what_has_ended():
    log = ReplicaLog().join("g", peers=3).submit("a").submit("b").submit("c")
    log.tell(KillJob(job="a"))
    log.complete("b")
    log.tell(Gc(id="client", jobs=("b", "c", "nobody")))
    assert (log.new.jobs, log.new.completed_jobs, log.new.killed_jobs) == (("c",), (), ("a",))
    assert set(log.new.records) == {"a", "c"}


def test_a_late_signal_means_nothing():
    log = ReplicaLog().join("g", peers=3).submit()
    version = log.new.run("j").allocation_version
    log.tell(signal("j", version - 1, "g-0"))
    assert log.new.run("j").ready == Map()
    assert log.new.peer_state["g-0"] == "idle"


def test_the_shards_of_a_windowed_task_are_registered_without_a_document():
    log = ReplicaLog().join("g", peers=3).submit()
    log.tell(RegisterPartitions(job="j", task="read", count=128, digest=""))
    assert log.new.partitions("j")["read"].count == 128
