import pytest
from immutables import Map
from msgspec.structs import replace
from tests.support.log.invariants import STATES, STEPS, transition_violations, violations
from tests.support.log.replica_log import ReplicaLog
from tests.support.log.runs import altered
from tests.support.log.submissions import job_spec

from onyx.ids import NO_POSITION
from onyx.replica.commands import DrainJob, ExhaustInput, PauseJob, SignalRest
from onyx.replica.scheduling.demand import demand


def healthy():
    log = ReplicaLog().join("g1", "g2", "g3", peers=2).submit().ready()
    log.tell(DrainJob(job="j"))
    log.tell(ExhaustInput(job="j", task="read"))
    log.tell(PauseJob(job="j"))
    run = log.new.run("j")
    reading = run.allocation["read"]
    log.tell(SignalRest("j", "read", run.allocation_version, run.paused, reading))
    return log.new


def seat(replica, task, *peers):
    allocation = replica.run("j").allocation.set(task, peers)
    return altered(replica, "j", allocation=allocation)


def asked(replica):
    """The demand of a job is known."""
    assert demand(replica, "j").lower == 3
    return replica


def respecified(replica, **more):
    spec = job_spec("read parse write", inputs=["read"], outputs=["write"], **more)
    return replace(replica, records=Map({"j": replace(replica.records["j"], spec=spec)}))


BROKEN = {
    "R1": lambda r: seat(r, "read", "nobody"),
    "R2": lambda r: seat(r, "read", *r.run("j").allocation["write"]),
    "R3": lambda r: altered(r, "j", slots=Map({"read": Map({"g1-0": 0, "g1-1": 0})})),
    "R4": lambda r: seat(r, "parse"),
    "R5": lambda r: altered(r, "j", sealers=Map({"write": "nobody"})),
    "R6": lambda r: replace(r, jobs=(), killed_jobs=("j",)),
    "R6-suspended": lambda r: altered(r, "j", suspended=True),
    "R7": lambda r: replace(r, pairs=r.pairs.set("g1", "g1")),
    "R7-joins": lambda r: replace(r, prepared=Map({"g1": "x"}), accepted=Map({"g1": "y"})),
    "R8": lambda r: replace(r, groups_reverse_index=r.groups_reverse_index.delete("g1-0")),
    "R9": lambda r: altered(r, "j", allocation_version=r.version + 1),
    "R11": lambda r: respecified(r, required_tags={"read": ["gpu"]}),
    "R12": lambda r: replace(r, peer_state=r.peer_state.set("ghost", "idle")),
    "R14": lambda r: replace(
        respecified(r, task_scheduler="colocated"),
        peer_sites=Map({peer: Map({"address": f"{peer}:1"}) for peer in r.peers}),
    ),
    "R15": lambda r: altered(r, "j", options=Map({"nowhere": Map({"maxPending": 5})})),
    "R16": lambda r: altered(r, "j", paused=NO_POSITION),
    "R17": lambda r: respecified(asked(r), min_required_peers={"read": 2}),
    "F4": lambda r: replace(r, left=Map({"g1": 0})),
}


def test_a_healthy_replica_breaks_nothing():
    assert violations(healthy()) == []


def test_each_invariant_has_a_replica_that_breaks_it():
    assert set(BROKEN) == set(STATES)


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name):
    assert name in {each.partition(":")[0] for each in violations(BROKEN[name](healthy()))}


def later(replica):
    return replace(replica, version=replica.version + 1)


STEPS_BROKEN = {
    "L2": lambda r: r,
    "R3": lambda r: later(
        altered(
            r,
            "j",
            slots=Map(
                {
                    task: Map({peer: slot + 5 for peer, slot in slots.items()})
                    for task, slots in r.run("j").slots.items()
                }
            ),
        )
    ),
    "R9": lambda r: later(altered(r, "j", allocation_version=r.version)),
    "R10": lambda r: later(
        seat(
            seat(r, "read", *r.run("j").allocation["write"]),
            "write",
            *r.run("j").allocation["read"],
        )
    ),
    "R13": lambda r: later(altered(r, "j", exhausted_inputs=Map())),
    "R16": lambda r: later(altered(r, "j", rested=Map())),
    "R13-draining": lambda r: later(altered(r, "j", draining=False)),
}


def test_each_invariant_of_steps_has_a_step_that_breaks_it():
    assert set(STEPS_BROKEN) == set(STEPS)


@pytest.mark.parametrize("name", STEPS_BROKEN)
def test_what_a_step_breaks_is_found(name):
    old = healthy()
    found = transition_violations(old, STEPS_BROKEN[name](old))
    assert name in {each.partition(":")[0] for each in found}
