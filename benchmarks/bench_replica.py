"""How fast the replicated log is folded, and how long scheduling takes.

    python -m benchmarks.bench_replica [--quick] [--json FILE]

Replay: a log of mixed entries as one group sees it, each decoded from its bytes, applied, and asked
for reactions and effects. Scheduling: one entry that makes 50 jobs share 1,000 peers anew. Waiting:
a log with 1,000 jobs of which one runs at a time, as a page or `onyx events` reads it. Best of
several runs; the goals of the first two are those of the first issue (5,000 entries/s, 1 s).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.figures import Figure, Measured, Options, parser, run
from msgspec.structs import replace

from onyx.codec.entries import decode_entry, encode_entry
from onyx.ids import GroupId, JobId, PeerId, Position, TaskName
from onyx.replica import canonical, machine, story
from onyx.replica.command import Command, Entry
from onyx.replica.commands.add_virtual_peer import AddVirtualPeer
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.replica.commands.gc import Gc
from onyx.replica.commands.join_cluster import (
    AcceptJoinCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
    acceptance,
)
from onyx.replica.commands.kill_job import KillJob
from onyx.replica.commands.leave_cluster import LeaveCluster
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.commands.seal_output import SealOutput
from onyx.replica.commands.signal_ready import SignalReady, signal
from onyx.replica.commands.submit_job import SubmitJob
from onyx.replica.derived import settle
from onyx.replica.spec import JobSpec, TaskSpec
from onyx.replica.state import Replica

GOAL_ENTRIES_S, GOAL_SCHEDULING_S = 5_000, 1.0
GOAL_WAITING_CPU_S = 8.0
NOBODY = GroupId("")
TASKS = ("read", "parse", "write")


def submission(job: str, most: int | None = None, tagged: int | None = None) -> SubmitJob:
    """`most`: peers of each task. With `tagged`, the middle task needs a tag and has that many
    peers at most; 0 for no limit."""

    def task(name: str) -> TaskSpec:
        needs = name == "parse" and tagged is not None
        return TaskSpec(
            name=TaskName(name),
            input=name == "read",
            output=name == "write",
            max_peers=(tagged or None) if needs else most,
            required_tags=("gpu",) if needs else (),
        )

    spec = JobSpec(tasks=tuple(map(task, TASKS)), task_scheduler="balanced", digest="0" * 64)
    return SubmitJob(id=JobId(job), spec=spec)


def joining(groups: int, peers_each: int) -> Iterator[Command]:
    """Groups that join one after another, each with its peers; every fifth peer has a tag."""
    for group in (GroupId(f"group-{number:04}") for number in range(groups)):
        yield PrepareJoinCluster(joiner=group)
        yield NotifyJoinCluster(observer=group)
        for peer in range(peers_each):
            yield AddVirtualPeer(
                id=PeerId(f"{group}-{peer}"),
                group_id=group,
                tags=("gpu",) if peer % 5 == 0 else (),
                peer_site={"address": f"{group}:1"},
            )


def life_of(job: JobId, signals: int) -> Iterator[Command]:
    """All entries of a job that completes. Each signal is of all peers; `_written` says which."""
    yield submission(job, most=2)
    yield RegisterPartitions(job=job, task=TaskName("read"), count=8, digest="d")
    for _ in range(signals):
        yield signal(job, 0, PeerId("all"))
    for partition in range(8):
        yield ExhaustInput(job=job, task=TaskName("read"), partitions=(partition,))
    yield SealOutput(job=job, task=TaskName("write"))


def mixed_log(entries: int) -> list[bytes]:
    """A cluster of 20 groups with 80 peers; groups die and come back, jobs come and complete."""
    commands: list[Command] = []
    for group in joining(20, 4):
        commands.append(group)
        if isinstance(group, NotifyJoinCluster):
            commands.append(AcceptJoinCluster(NOBODY, NOBODY, NOBODY, NOBODY))
    number = 0
    while len(commands) < entries:
        number += 1
        commands += life_of(JobId(f"job-{number}"), 12)
        if number % 10 == 0:
            commands += [Gc(id="client")]
            commands += [LeaveCluster(id=PeerId(f"group-{number % 20:04}-3"))]
    return _written(commands[: entries + 1])[:entries]


def waiting_log(jobs: int) -> list[bytes]:
    """Jobs come to a cluster that has peers for one of them; a tenth of them are killed."""
    commands: list[Command] = list(joining(1, len(TASKS)))
    commands += [submission(f"job-{number:04}") for number in range(jobs)]
    commands += [KillJob(job=JobId(f"job-{number:04}")) for number in range(jobs // 10)]
    return [encode_entry(command, "", 0, None) for command in commands]


def told(log: list[bytes]) -> int:
    """Fold a log and say what happens in it; how many events there are."""
    replica, events = Replica(), 0
    for position, data in enumerate(log):
        entry = decode_entry(Position(position), data)
        old, replica = replica, machine.apply(replica, entry)
        events += len(story.events_of(old, entry, replica))
    return events


def _written(commands: list[Command]) -> list[bytes]:
    """The log; an accept says whom the replica had chosen, as the joiner would, and a signal which
    peers are on the job, as groups would. The first group joins without being accepted."""
    replica, log = Replica(), list[bytes]()
    for command in commands:
        if isinstance(command, AcceptJoinCluster):
            if not replica.accepted:
                continue
            watcher, joiner = next(iter(replica.accepted.items()))
            command = acceptance(replica, watcher, joiner)
        if isinstance(command, SignalReady):
            (ready,) = command.jobs
            run = replica.run(ready.job)
            peers = tuple(peer for each in run.allocation.values() for peer in each)
            command = signal(ready.job, run.allocation_version, *peers)
        replica = machine.apply(replica, Entry(Position(len(log)), command))
        log.append(encode_entry(command, "", 0, None))
    assert replica.rejected == 0
    assert len(replica.groups) == 20
    return log


def replay(log: list[bytes], me: GroupId) -> Replica:
    replica = Replica()
    for position, data in enumerate(log):
        entry = decode_entry(Position(position), data)
        old, replica = replica, machine.apply(replica, entry)
        machine.reactions(entry, old, replica, me)
        machine.effects(entry, old, replica, me)
    return replica


def cluster(tagged: int | None, peers: int, many_jobs: int) -> Replica:
    """Jobs that have never been scheduled, and peers of one group."""
    replica = Replica()
    for command in joining(1, peers):
        replica = machine.apply(replica, Entry(Position(replica.version + 1), command))
    jobs = Replica()
    for number in range(many_jobs):
        command = submission(f"job-{number:02}", tagged=tagged)
        jobs = machine.apply(jobs, Entry(Position(number), command))
    return replace(replica, jobs=jobs.jobs, records=jobs.records)


def best_s(
    work: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    times = []
    for _ in range(runs):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def scheduling_rows(tagged: int | None, options: argparse.Namespace) -> dict[str, float]:
    waiting = cluster(tagged, options.peers, options.jobs)
    running = settle(Replica(), waiting, Position(1))
    allocated = sum(bool(running.run(job).allocation) for job in running.jobs)
    assert tagged == 0 or allocated == options.jobs
    dies = Entry(Position(5_000), LeaveCluster(id=running.peers[-1]))
    ends = Entry(Position(5_000), KillJob(job=running.jobs[-1]))
    works: dict[str, Callable[[], Replica]] = {
        "all jobs for the first time": lambda: settle(Replica(), waiting, Position(1)),
        "a peer leaves": lambda: machine.apply(running, dies),
        "a job is killed": lambda: machine.apply(running, ends),
    }
    return {name: best_s(work, options.repeats) for name, work in works.items()}


def measure(options: argparse.Namespace) -> Measured:
    log = mixed_log(options.entries)
    me = GroupId("group-0000")
    rate = options.entries / best_s(lambda: replay(log, me), options.repeats)
    last = replay(log, me)
    digest_s = best_s(lambda: [canonical.digest(last) for _ in range(100)], options.repeats) / 100
    waiting = waiting_log(options.waiting)
    waiting_cpu_s = best_s(lambda: told(waiting), options.repeats, time.process_time)
    cases = {"no tags": None, "tags": 3, "too many tags": 0}
    columns = {name: scheduling_rows(tagged, options) for name, tagged in cases.items()}
    title = f"{options.peers:,} peers, {options.jobs} jobs, seconds"
    print(f"{title:34}" + "".join(f"{name:>15}" for name in columns))
    for name in columns["tags"]:
        print(f"{name:34}" + "".join(f"{rows[name]:>15.3f}" for rows in columns.values()))
    print("too many tags: a fifth of the peers has one, and more are wanted")
    found = [
        Figure(
            f"replay of a log of {options.entries:,} entries", rate, "entries/s", GOAL_ENTRIES_S,
            at_least=True, note="decode, apply, reactions, effects",
        ),
        *(
            Figure(
                f"scheduling {options.peers:,} peers over {options.jobs} jobs, {case}",
                max(rows.values()), "s", GOAL_SCHEDULING_S,
                note="the slowest of: all jobs anew, a peer leaves, a kill",
            )
            for case, rows in columns.items()
        ),
        Figure(
            f"fold of a log in which {options.waiting:,} jobs wait", waiting_cpu_s, "CPU s",
            GOAL_WAITING_CPU_S, note="decode, apply, events",
        ),
        Figure("digest of a replica in which nothing changed", digest_s * 1e6, "us"),
    ]  # fmt: skip
    return Measured(found, {"digest_unchanged_s": digest_s, "scheduling_s": columns})


def options() -> Options:
    made = parser(__doc__)
    made.sized("--entries", 10_000, 10_000, 400, "of the log that is replayed")
    made.sized("--peers", 1_000, 1_000, 60)
    made.sized("--jobs", 50, 50, 3)
    made.sized("--waiting", 1_000, 1_000, 20, "jobs that wait")
    made.sized("--repeats", 3, 1, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    run(measure, options(), arguments)


if __name__ == "__main__":
    main()
