import os
import subprocess
import sys

import pytest
from msgspec.structs import replace
from tests.support.log.replica_log import ReplicaLog

from onyx.errors import UserError
from onyx.replica import canonical
from onyx.replica.commands import (
    AddVirtualPeer,
    ExhaustInput,
    GroupLeaveCluster,
    RegisterPartitions,
)
from onyx.replica.state import Replica


def busy_replica():
    log = ReplicaLog().join("g1", "g2", "g3", peers=3)
    log.submit("j1", task_saturation={"read": 2}, required_tags={"parse": []})
    log.submit("j2", "in out", flux_policies={"out": "continue"})
    log.tell(RegisterPartitions(job="j1", task="read", count=3, digest="names"))
    log.tell(ExhaustInput(job="j1", task="read", partitions=(2, 0)))
    log.tell(GroupLeaveCluster(id="g2"))
    log.tell_raw("no-such-command")
    return log.ready("j1").new


@pytest.mark.parametrize("replica", [Replica(), Replica(job_scheduler="greedy"), busy_replica()])
def test_what_is_written_is_read_back_equal(replica):
    assert canonical.decode(canonical.encode(replica)) == replica
    assert canonical.from_plain(canonical.to_plain(replica)) == replica
    assert canonical.digest(canonical.decode(canonical.encode(replica))) == canonical.digest(
        replica
    )


def test_sets_are_sorted_lists():
    assert canonical.to_plain(busy_replica())["records"]["j1"]["run"]["exhausted_partitions"] == [
        0,
        2,
    ]


def test_the_digest_tells_any_change():
    log = ReplicaLog().join("g", peers=2)
    digests = {canonical.digest(log.new)}
    for step in range(1, 20):
        log.tell(AddVirtualPeer(id=f"p{step}", group_id="g"))
        digests.add(canonical.digest(log.new))
    assert len(digests) == 20


def test_the_digest_of_an_old_replica_is_the_same_after_many_others():
    replica = busy_replica()
    before = canonical.digest(replica)
    log = ReplicaLog().join("g")
    for step in range(3 * canonical.FIELD_VALUES_KEPT_MAX):
        log.tell(AddVirtualPeer(id=f"p{step}", group_id="g"))
        canonical.digest(log.new)
    assert canonical.digest(replica) == before == canonical.digest(busy_replica())


def test_the_bytes_of_all_jobs_are_kept_of_few_replicas():
    log = ReplicaLog().join("g")
    for step in range(50):
        records = log.new.records.set(f"j{step}", busy_replica().records["j1"])
        canonical.digest(replace(log.new, records=records))
    assert len(canonical._KEPT["records"]) <= canonical.ALL_RECORDS_KEPT_MAX


PROGRAM = """
from tests.unit.replica.test_replica_canonical import busy_replica
from onyx.replica import canonical
print(canonical.digest(busy_replica()), canonical.encode(busy_replica()).decode())
"""


def test_processes_with_other_hash_seeds_agree():
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert canonical.digest(busy_replica()) in said.pop()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not the JSON of a replica"),
        (b"[]", "not the JSON of a replica"),
        (b'{"later_field": 1}', "later_field is not known to this version"),
        (b'{"groups": "g1"}', "groups cannot be read"),
        (b'{"pairs": [1]}', "pairs cannot be read"),
        (b'{"records": {"j": {"spec": {"tasks": 7}}}}', "records cannot be read"),
        (b'{"records": {"j": {"partitions": {"read": {"first": 0}}}}}', "records cannot be read"),
        (b'{"records": {"j": {"run": {"later_field": 1}}}}', "records cannot be read"),
        (b'{"records": {"j": {}}}', "records cannot be read"),
        (b'{"version": true}', "version cannot be read"),
    ],
)
def test_what_is_no_replica_is_refused_with_the_field(data, message):
    with pytest.raises(UserError, match=message):
        canonical.decode(data)
