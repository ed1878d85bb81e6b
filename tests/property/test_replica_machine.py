"""The replicated state machine under any entries: total, deterministic, and its invariants hold."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.log.invariants import transition_violations, violations
from tests.support.log.raw_entries import raw_command
from tests.support.log.submissions import job_spec

from onyx.ids import GroupId, Position
from onyx.replica import canonical, machine, story
from onyx.replica.command import Entry
from onyx.replica.commands import COMMANDS, AddVirtualPeer, PrepareJoinCluster
from onyx.replica.state import Replica

GROUPS = [f"g{number}" for number in range(4)]
PEERS = [f"p{number}" for number in range(8)]
JOBS = ["j1", "j2", "j3"]
TASKS = ["in", "work", "out"]
TAGS = ["gpu", "ssd"]

groups, peers, jobs, tasks = map(st.sampled_from, (GROUPS, PEERS, JOBS, TASKS))
counts = st.integers(0, 4)
limits = st.one_of(st.none(), st.integers(1, 4))
tags = st.lists(st.sampled_from(TAGS), unique=True)
runs = st.lists(
    st.tuples(st.just(0), counts, counts).map(lambda each: (each[0], *sorted(each[1:]))), max_size=2
)

DRIVER = job_spec(["in"], inputs=["in"], outputs=["in"], task_saturation={"in": 1})
"""As of a job on Spark: one task, which is input and output at once."""
ARGUMENTS = {
    "prepare-join-cluster": {"joiner": groups},
    "notify-join-cluster": {"observer": groups},
    "accept-join-cluster": {
        "observer": groups,
        "subject": groups,
        "accepted-observer": groups,
        "accepted-joiner": groups,
    },
    "abort-join-cluster": {"id": groups},
    "group-leave-cluster": {"id": groups},
    "add-virtual-peer": {
        "id": peers,
        "group-id": groups,
        "tags": tags,
        "peer-site": st.sampled_from([{"address": "one:1"}, {"address": "other:1"}]),
    },
    "leave-cluster": {"id": peers},
    "submit-job": {
        "id": jobs,
        "spec": st.builds(
            lambda **more: to_builtins(job_spec(TASKS, inputs=["in"], outputs=["out"], **more)),
            task_scheduler=st.sampled_from(["balanced", "balanced", "colocated"]),
            saturation=limits,
            task_saturation=st.dictionaries(tasks, limits),
            min_required_peers=st.dictionaries(tasks, st.integers(1, 3)),
            flux_policies=st.dictionaries(tasks, st.sampled_from(["kill", "continue", "recover"])),
            required_tags=st.dictionaries(tasks, tags, max_size=1),
            acker_percentage=st.sampled_from([1, 50, 100]),
            ackers=st.sampled_from([None, None, 1, 2, 100]),
        )
        | st.just(to_builtins(DRIVER)),
    },
    "load-job": {
        "id": jobs,
        "spec": st.just(to_builtins(job_spec(TASKS, inputs=["in"], outputs=["out"]))),
        "place": st.sampled_from(["/a/b", "/a/c"]),
        "origin": jobs,
        "publishes": st.booleans(),
        "partitions": st.dictionaries(tasks, st.tuples(counts, counts, st.just("d"))),
        "ready-version": st.integers(-1, 60),
        "whole": st.booleans(),
    },
    "kill-job": {"job": jobs, "why": st.sampled_from(["", "task work failed"])},
    "suspend-job": {"job": jobs},
    "resume-job": {"job": jobs},
    "drain-job": {"job": jobs},
    "pause-job": {"job": jobs},
    "signal-rest": {
        "job": jobs,
        "task": tasks,
        "version": st.integers(0, 60),
        "pause": st.integers(0, 60),
        "peers": st.lists(peers, min_size=1, max_size=4),
    },
    "signal-failing": {"job": jobs, "task": tasks, "peer": peers, "over": st.booleans()},
    "register-partitions": {"job": jobs, "task": tasks, "count": counts, "digest": st.just("d")},
    "exhaust-input": {"job": jobs, "task": tasks, "partitions": st.none() | st.lists(counts)},
    "seal-output": {"job": jobs, "task": tasks},
    "signal-ready": {
        "jobs": st.lists(
            st.fixed_dictionaries(
                {
                    "job": jobs,
                    "version": st.integers(0, 60),
                    "peers": st.lists(peers, min_size=1, max_size=4),
                }
            ),
            min_size=1,
            max_size=3,
        )
    },
    "check-job": {"id": st.just("check"), "digest": st.just("d")},
    "vouch-job": {
        "id": st.just("check"),
        "group": groups,
        "problems": st.lists(st.just("a problem"), max_size=2),
    },
    "restart-task": {"job": jobs, "task": tasks, "afresh": st.booleans()},
    "report-loss": {
        "job": jobs,
        "task": tasks,
        "loss": st.sampled_from(["loss-1", "loss-2"]),
        "killed": st.booleans(),
        "runs": runs,
        "id": st.sampled_from(["", "0123456789abcdef"]),
        "afresh": st.booleans(),
    },
    "set-options": {
        "job": jobs,
        "tasks": st.dictionaries(
            tasks, st.dictionaries(st.sampled_from(["maxPending", "batchTimeout"]), counts)
        ),
        "declares": st.sampled_from(["", "a", "b"]),
    },
    "gc": {"id": st.just("client"), "jobs": st.none() | st.lists(jobs)},
}
entries = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda fn: st.tuples(st.just(fn), st.fixed_dictionaries(ARGUMENTS[fn]))
)
commands = entries.map(lambda entry: raw_command(*entry))
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
schedulers = st.sampled_from(["balanced", "greedy"])


def start(scheduler):
    """One group with five peers: otherwise few sequences come to an allocation."""
    replica = Replica(job_scheduler=scheduler)
    opening = [PrepareJoinCluster(joiner="g0")]
    opening += [AddVirtualPeer(id=p, group_id="g0") for p in PEERS[:5]]
    for command in opening:
        replica = machine.apply(replica, Entry(Position(replica.version + 1), command))
    return replica


def answered(entry, old, new):
    """All that the machine says of an entry, to every group."""
    return [
        (
            machine.reactions(entry, old, new, GroupId(g)),
            machine.effects(entry, old, new, GroupId(g)),
        )
        for g in GROUPS
    ]


def test_the_arguments_of_every_command_are_drawn():
    assert sorted(ARGUMENTS) == sorted(COMMANDS)


@settings(max_examples=examples(150), deadline=None)
@given(schedulers, st.lists(commands, min_size=5, max_size=40))
def test_the_invariants_hold_after_every_entry(scheduler, sequence):
    replica = start(scheduler)
    for command in sequence:
        entry = Entry(Position(replica.version + 1), command)
        old, replica = replica, machine.apply(replica, entry)
        assert violations(replica) == [], entry
        assert transition_violations(old, replica) == [], entry
        events = story.events_of(old, entry, replica)
        assert all(each.text for each in events)
        ended = set(old.jobs).difference(replica.jobs)
        assert ended <= {each.job for each in events}, "each end of a job is among its events"
        answered(entry, old, replica)


@settings(max_examples=examples(60), deadline=None)
@given(schedulers, st.lists(commands, max_size=30))
def test_reactions_that_are_carried_out_keep_the_invariants(scheduler, sequence):
    """Groups answer at once: what they write follows, bounded, with the next command after it."""
    replica, writes = start(scheduler), list(sequence)
    for _ in range(4 * len(sequence)):
        if not writes:
            break
        entry = Entry(Position(replica.version + 1), writes.pop(0))
        old, replica = replica, machine.apply(replica, entry)
        assert violations(replica) == [], entry
        for written, _effects in answered(entry, old, replica):
            writes[:0] = written


@settings(max_examples=examples(60), deadline=None)
@given(schedulers, st.lists(st.tuples(commands, groups), max_size=25))
def test_a_repeat_of_any_entry_changes_nothing_but_the_position(scheduler, sequence):
    replica = start(scheduler)
    for number, (command, writer) in enumerate(sequence, 1):
        entry = Entry(Position(replica.version + 1), command, writer, number)
        replica = machine.apply(replica, entry)
        repeat = replace(entry, position=Position(replica.version + 1))
        again = machine.apply(replica, repeat)
        assert replace(again, version=replica.version) == replica
        assert violations(again) == []
        assert all(said == ((), ()) for said in answered(repeat, replica, again))
        replica = again


@settings(max_examples=examples(60), deadline=None)
@given(schedulers, st.lists(commands, max_size=25))
def test_a_replica_read_back_goes_on_alike(scheduler, sequence):
    replica = copy = start(scheduler)
    for command in sequence:
        entry = Entry(Position(replica.version + 1), command)
        replica = machine.apply(replica, entry)
        copy = machine.apply(canonical.decode(canonical.encode(copy)), entry)
        assert copy == replica
        assert canonical.digest(copy) == canonical.digest(replica)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(sorted(COMMANDS)) | st.text(max_size=8),
    st.dictionaries(
        st.sampled_from(sorted({key for args in ARGUMENTS.values() for key in args}))
        | st.text(max_size=5),
        json_like,
        max_size=8,
    ),
    st.sampled_from([*GROUPS, ""]),
    st.integers(0, 3),
)
def test_no_arguments_make_the_machine_raise(fn, args, writer, sequence):
    old = start("balanced")
    entry = Entry(Position(old.version + 1), raw_command(fn, args), writer, sequence)
    new = machine.apply(old, entry)
    assert violations(new) == []
    answered(entry, old, new)
    if fn not in COMMANDS:
        assert new.rejected == old.rejected + 1


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_nor_do_arguments_of_which_one_is_wrong(data):
    fn, args = data.draw(entries)
    key = data.draw(st.sampled_from(sorted(args)))
    old = start("balanced")
    command = raw_command(fn, {**args, key: data.draw(json_like)})
    entry = Entry(Position(old.version + 1), command)
    new = machine.apply(old, entry)
    assert violations(new) == []
    answered(entry, old, new)
    canonical.digest(new)
