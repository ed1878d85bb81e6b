"""What the peers of a group propose about one job becomes one entry of the group."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.support.log.submissions import submit_job
from tests.unit.peer.conftest import Ring

from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.peer import gathering
from onyx.peer.group import Propose
from onyx.replica.command import Command
from onyx.replica.commands import (
    AddVirtualPeer,
    ExhaustInput,
    KillJob,
    PauseJob,
    RegisterPartitions,
    SignalReady,
    SignalRest,
)
from onyx.replica.commands.signal_ready import signal
from onyx.replica.effects import RewireTask, StartTask

TASKS = ("in", "mid", "out")
PEERS = tuple(f"a{number}" for number in range(6))


def running(ring: Ring, *, saturation: int | None = None) -> None:
    """Two groups with six and three peers, and a job of three tasks on all of them."""
    ring.start("a", *PEERS)
    ring.start("b", "b0", "b1", "b2")
    ring.play()
    more = {} if saturation is None else {"saturation": saturation}
    ring.write(
        submit_job(
            id="job", tasks=list(TASKS), inputs=["in"], outputs=["out"],
            task_scheduler="balanced", **more,
        )
    )  # fmt: skip
    ring.play()


def on(ring: Ring, group: str, task: str | None = None) -> list[PeerId]:
    """Peers of a group that are on the job, or on a task of it."""
    replica = ring.states[group].replica
    allocation = replica.run(JobId("job")).allocation
    tasks = TASKS if task is None else (task,)
    mine = replica.groups_index[GroupId(group)]
    return [peer for each in tasks for peer in allocation.get(TaskName(each), ()) if peer in mine]


def version(ring: Ring) -> int:
    return ring.states["a"].replica.run(JobId("job")).allocation_version


def ready(ring: Ring, peer: PeerId, at: int | None = None) -> SignalReady:
    return signal(JobId("job"), version(ring) if at is None else at, peer)


def propose(ring: Ring, group: str, peer: PeerId, command: Command) -> None:
    ring.feed(group, Propose(peer, command))


def of_kind(ring: Ring, kind: type[Command]) -> list[Command]:
    return [entry.command for entry in ring.log if isinstance(entry.command, kind)]


def jobs_signalled(ring: Ring) -> list[list[str]]:
    """Of each entry, its jobs."""
    return [[each.job for each in entry.jobs] for entry in of_kind(ring, SignalReady)]


def peers_signalled(ring: Ring) -> list[list[int]]:
    """Of each entry, the number of peers of each job in it."""
    return [[len(each.peers) for each in entry.jobs] for entry in of_kind(ring, SignalReady)]


def test_a_group_signals_once_with_its_last_peer(ring: Ring) -> None:
    running(ring)
    *first, last = on(ring, "a")
    for peer in first:
        propose(ring, "a", peer, ready(ring, peer))
    assert of_kind(ring, SignalReady) == []
    propose(ring, "a", last, ready(ring, last))
    (entry,) = of_kind(ring, SignalReady)
    assert [each.peers for each in entry.jobs] == [tuple(sorted([*first, last]))]
    ring.play()
    assert set(ring.states["b"].replica.run(JobId("job")).ready) == set(on(ring, "a"))


def test_each_group_signals_for_its_own_peers(ring: Ring) -> None:
    running(ring)
    for group in "ab":
        for peer in on(ring, group):
            propose(ring, group, peer, ready(ring, peer))
    assert peers_signalled(ring) == [[6], [3]]


def test_jobs_that_are_ready_while_a_signal_is_on_its_way_go_together(ring: Ring) -> None:
    names = [f"job-{number}" for number in range(4)]
    ring.start("a", *PEERS, "a6", "a7")
    ring.play()
    for name in names:
        ring.write(
            submit_job(
                id=name, tasks=["in", "out"], inputs=["in"], outputs=["out"],
                task_scheduler="balanced", saturation=2,
            )
        )  # fmt: skip
    ring.play()
    for name in names:
        run = ring.states["a"].replica.run(JobId(name))
        for peers in run.allocation.values():
            for peer in peers:
                propose(ring, "a", peer, signal(JobId(name), run.allocation_version, peer))
    assert [[each.job for each in entry.jobs] for entry in of_kind(ring, SignalReady)] == [
        names[:1]
    ]
    ring.play()
    signals = [[each.job for each in entry.jobs] for entry in of_kind(ring, SignalReady)]
    assert signals == [names[:1], names[1:]]
    assert all(ring.states["a"].replica.run(JobId(name)).is_ready for name in names)


def test_a_group_says_once_that_all_its_peers_of_a_source_are_at_rest(ring: Ring) -> None:
    running(ring)
    ring.write(PauseJob(job="job"))
    ring.play()
    run = ring.states["a"].replica.run(JobId("job"))
    for peer in on(ring, "a", "in"):
        assert of_kind(ring, SignalRest) == []
        said = SignalRest(JobId("job"), TaskName("in"), version(ring), run.paused, (peer,))
        propose(ring, "a", peer, said)
    (entry,) = of_kind(ring, SignalRest)
    assert entry.peers == tuple(sorted(on(ring, "a", "in")))
    ring.play()
    found = ring.states["b"].replica.run(JobId("job"))
    assert set(found.rested) == set(on(ring, "a", "in"))


def test_a_signal_that_was_passed_over_with_an_origin_keeps_no_other_back(ring: Ring) -> None:
    running(ring)
    ring.start("c")
    ring.play()
    for peer in on(ring, "a"):
        propose(ring, "a", peer, ready(ring, peer))
    assert ring.states["a"].gathered.on_its_way
    ring.play("b", "c")
    ring.jump("a", "c")
    assert not ring.states["a"].gathered.on_its_way


def test_signals_of_an_older_version_are_dropped_and_all_signal_again(ring: Ring) -> None:
    running(ring)
    old, *peers = version(ring), *on(ring, "a")
    for peer in peers[:-1]:
        propose(ring, "a", peer, ready(ring, peer))
    ring.write(AddVirtualPeer(id="b3", group_id="b"))
    ring.play()
    assert version(ring) > old
    propose(ring, "a", peers[-1], ready(ring, peers[-1], old))
    assert of_kind(ring, SignalReady) == []
    for peer in on(ring, "a"):
        propose(ring, "a", peer, ready(ring, peer))
    (entry,) = of_kind(ring, SignalReady)
    (found,) = entry.jobs
    assert (found.version, len(found.peers)) == (version(ring), len(on(ring, "a")))


def test_partitions_are_exhausted_in_one_entry_of_the_group(ring: Ring) -> None:
    running(ring)
    ring.write(RegisterPartitions(job="job", task="in", count=9, digest="d"))
    ring.play()
    peers = on(ring, "a", "in")
    assert len(peers) > 1
    for number, peer in enumerate(peers):
        assert of_kind(ring, ExhaustInput) == []
        mine = (number, number + len(peers)) if number else ()
        propose(ring, "a", peer, ExhaustInput(job="job", task="in", partitions=mine))
    (entry,) = of_kind(ring, ExhaustInput)
    assert list(entry.partitions) == sorted(
        number + more for number in range(1, len(peers)) for more in (0, len(peers))
    )


def test_what_comes_after_the_group_has_written_is_written_at_once(ring: Ring) -> None:
    """A proposal of before a rewiring may count for a peer that has more to say after it."""
    running(ring)
    peers = on(ring, "a", "in")
    for number, peer in enumerate(peers):
        propose(ring, "a", peer, ExhaustInput(job="job", task="in", partitions=(number,)))
    propose(ring, "a", peers[0], ExhaustInput(job="job", task="in", partitions=(7,)))
    assert [entry.partitions for entry in of_kind(ring, ExhaustInput)][1:] == [(7,)]


def test_a_group_of_peers_without_partitions_writes_nothing(ring: Ring) -> None:
    running(ring)
    for peer in on(ring, "a", "in"):
        propose(ring, "a", peer, ExhaustInput(job="job", task="in", partitions=()))
    assert of_kind(ring, ExhaustInput) == []


def test_nothing_is_held_of_a_job_that_has_ended(ring: Ring) -> None:
    running(ring)
    peer = on(ring, "a")[0]
    propose(ring, "a", peer, ready(ring, peer))
    assert ring.states["a"].gathered.held
    ring.write(KillJob(job="job"))
    ring.play()
    assert not ring.states["a"].gathered.held


def test_a_job_whose_peers_stay_is_not_wired_anew_by_other_jobs(ring: Ring) -> None:
    running(ring, saturation=3)
    before = version(ring)
    for number in range(2):
        ring.write(
            submit_job(
                id=f"other-{number}", tasks=["in", "out"], inputs=["in"], outputs=["out"],
                task_scheduler="balanced", saturation=2,
            )
        )  # fmt: skip
        ring.play()
    assert version(ring) == before
    wired = [a for a in ring.actions["a"] if isinstance(a, StartTask | RewireTask)]
    assert {each.version for each in wired if each.job == "job"} == {before}


@given(st.lists(st.sampled_from(PEERS), max_size=40), st.sets(st.sampled_from(PEERS)))
def test_whatever_the_order_all_items_of_all_peers_are_written_and_only_when_all_have_proposed(
    order: Sequence[str], late: set[str]
) -> None:
    ring = Ring()
    running(ring)
    replica = ring.states["a"].replica
    items = {peer: number for number, peer in enumerate(PEERS)}
    held, written, proposed = gathering.Gathering(), set[int](), set[str]()
    expected = set(on(ring, "a", "in"))
    for peer in (*(each for each in order if each not in late), *PEERS):
        command = ExhaustInput(job="job", task="in", partitions=(items[peer],))
        held, entries = gathering.gather(held, replica, GroupId("a"), PeerId(peer), command)
        proposed.add(peer)
        if not proposed.issuperset(expected):
            assert entries == ()
        for entry in entries:
            assert isinstance(entry, ExhaustInput)
            written.update(entry.partitions or ())
        if proposed.issuperset(expected):
            assert written == {items[each] for each in proposed}
