"""What must hold of every replica that the machine produces, by name.

Each is a small function that returns what is wrong, in words; the simulator asks after every step.
R5 of the original (one coordinator a job) is here about sealers, which are elected as it would be;
F4 is about groups that were declared dead. What speaks of one replica is in `STATES`, what speaks
of a step from one to the next in `STEPS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from immutables import Map
from msgspec.structs import replace
from tests.support.log.runs import by_job

from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.members import LEFT_GROUPS_KEPT_MAX
from onyx.replica.scheduling import colocation
from onyx.replica.scheduling.dealing import by_group
from onyx.replica.scheduling.demand import demand, has_tags
from onyx.replica.state import Replica


def violations(replica: Replica) -> list[str]:
    """Everything that is wrong with a replica; empty when nothing is."""
    return [f"{name}: {problem}" for name, check in STATES.items() for problem in check(replica)]


def transition_violations(old: Replica, new: Replica) -> list[str]:
    """Everything that is wrong with a step from one replica to the next."""
    return [f"{name}: {problem}" for name, check in STEPS.items() for problem in check(old, new)]


def options_are_of_tasks_that_run(replica: Replica) -> Iterator[str]:
    """Values were set for tasks that a job has, and an ended job has none."""
    for job in by_job(replica, "options"):
        for task in sorted(replica.run(job).options):
            if task not in replica.spec(job).by_name:
                yield f"{job} has no task {task}, for which values were set"


def allocated_peers_are_members(replica: Replica) -> Iterator[str]:
    members = set(replica.peers)
    for job, task, peer in _places(replica):
        if peer not in members:
            yield f"{peer} on {job}/{task} is not a member"
    for job in by_job(replica, "ackers"):
        there = {peer for each, _, peer in _places(replica) if each == job}
        for peer in replica.run(job).ackers:
            if peer not in there:
                yield f"{peer} is an acker of {job} and not on it"


def peers_have_one_task(replica: Replica) -> Iterator[str]:
    for peer, number in sorted(Counter(peer for _, _, peer in _places(replica)).items()):
        if number > 1:
            yield f"{peer} has {number} tasks"


def slots_are_unique(replica: Replica) -> Iterator[str]:
    """Each peer of a task has a slot of its own there; nobody else has one."""
    for job in sorted(replica.records):
        allocation = replica.run(job).allocation
        slots = replica.run(job).slots
        for task in sorted({*allocation, *slots}):
            numbers = slots.get(task, Map())
            if set(numbers) != set(allocation.get(task, ())):
                yield f"slots of {job}/{task} are not those of its peers"
            if len(set(numbers.values())) < len(numbers) or min(numbers.values(), default=0) < 0:
                yield f"slots of {job}/{task}: {sorted(numbers.values())}"


def jobs_are_whole(replica: Replica) -> Iterator[str]:
    """A job has its minimum on all tasks, or no peers at all; with a flux policy that goes by what
    becomes of peers, a task may have lost some since it began."""
    for job in by_job(replica, "allocation"):
        for spec in replica.spec(job).tasks:
            task = spec.name
            number = len(replica.run(job).allocation.get(task, ()))
            least = 1 if spec.flux_policy in colocation.PINNING else spec.min_peers
            if number < least:
                yield f"{job}/{task} has {number} peers, {least} at least"


def only_running_jobs_have_peers(replica: Replica) -> Iterator[str]:
    running = set(replica.jobs)
    for job, record in sorted(replica.records.items()):
        if (record.run is not None) != (job in running):
            yield f"{job} has a running half, or none: {record.run}; it runs: {job in running}"
    for job in sorted(running.difference(replica.records)):
        yield f"{job} runs and has no record"
    ends = (*replica.jobs, *replica.completed_jobs, *replica.killed_jobs)
    for job, number in sorted(Counter(ends).items()):
        if number > 1:
            yield f"{job} is {number} times among running, completed and killed jobs"


def suspended_jobs_have_no_peers(replica: Replica) -> Iterator[str]:
    for job in by_job(replica, "suspended"):
        for key in ("allocation", "slots", "ackers", "sealers"):
            if job in by_job(replica, key):
                yield f"{key} of {job}, which is suspended"


def ring_is_one_cycle(replica: Replica) -> Iterator[str]:
    groups = set(replica.groups)
    if len(groups) < len(replica.groups):
        yield f"a group joined twice: {replica.groups}"
    expected = groups if len(groups) > 1 else set()
    if set(replica.pairs) != expected:
        yield f"watchers {sorted(replica.pairs)} are not the groups {sorted(groups)}"
    elif expected and len(_walk(replica)) < len(expected):
        yield f"the ring is not one cycle: {dict(sorted(replica.pairs.items()))}"


def _walk(replica: Replica) -> set[str]:
    seen: set[str] = set()
    group = replica.groups[0]
    while group not in seen and group in replica.pairs:
        seen.add(group)
        group = replica.pairs[group]
    return seen


def joins_are_separate(replica: Replica) -> Iterator[str]:
    """Watchers of joiners are members, and each has one; a joiner joins once, and is no member."""
    watchers = (*replica.prepared, *replica.accepted)
    joiners = (*replica.prepared.values(), *replica.accepted.values())
    for watcher, number in sorted(Counter(watchers).items()):
        if watcher not in replica.groups or number > 1:
            yield f"{watcher} takes somebody in, {number} times, and may not"
    for joiner, number in sorted(Counter(joiners).items()):
        if joiner in replica.groups or joiner in replica.left or number > 1:
            yield f"{joiner} joins {number} times, or is in or gone already"


def members_are_indexed(replica: Replica) -> Iterator[str]:
    known = {*replica.peers}
    for group in sorted(replica.orphaned_peers):
        known.update(replica.orphaned_peers[group])
        if group in replica.groups:
            yield f"{group} has joined and has orphans"
    if len(set(replica.peers)) < len(replica.peers):
        yield "a peer is there twice"
    indexed = [(peer, group) for group, peers in replica.groups_index.items() for peer in peers]
    if dict(indexed) != dict(replica.groups_reverse_index) or len(dict(indexed)) < len(indexed):
        yield "the indices of groups and peers differ"
    if set(replica.groups_reverse_index) != known:
        yield "the indices do not hold exactly the members and orphans"
    for peer in replica.peers:
        if replica.groups_reverse_index.get(peer) not in replica.groups:
            yield f"{peer} is a member and its group is not"


def versions_are_set(replica: Replica) -> Iterator[str]:
    """An allocated job has a version, of the past; those that are ready for it are on the job."""
    for job in by_job(replica, "allocation"):
        if not 0 <= replica.run(job).allocation_version <= replica.version:
            yield f"{job} has the version {replica.run(job).allocation_version}"
    places = {(job, peer) for job, _, peer in _places(replica)}
    for job in by_job(replica, "ready"):
        for peer in sorted(replica.run(job).ready):
            if (job, peer) not in places:
                yield f"{peer} is ready for {job} and is not on it"


def tags_are_kept(replica: Replica) -> Iterator[str]:
    for job, task, peer in _places(replica):
        if not has_tags(
            replica.peer_tags.get(peer, ()), replica.spec(job).by_name[task].required_tags
        ):
            yield f"{peer} lacks tags for {job}/{task}"


def demands_are_those_found_anew(replica: Replica) -> Iterator[str]:
    """What is kept of the demand of a job holds."""
    for job in replica.jobs:
        record = replica.records[job]
        assert record.run is not None
        forgotten = replace(record, run=replace(record.run))
        anew = replace(replica, records=replica.records.set(job, forgotten))
        if demand(replica, job) != demand(anew, job):
            yield f"{job} is taken to demand {demand(replica, job)}"


def tasks_on(replica: Replica, job: JobId) -> dict[str, dict[TaskName, int]]:
    """How many peers of each task a process has."""
    found: dict[str, dict[TaskName, int]] = {}
    for task, peers in replica.run(job).allocation.items():
        for group, mine in by_group(replica, peers).items():
            found.setdefault(group, {})[task] = len(mine)
    return found


def colocated_jobs_sit_together(replica: Replica) -> Iterator[str]:
    """Every process of such a job has each of its tasks equally often."""
    for job in by_job(replica, "allocation"):
        if replica.spec(job).task_scheduler != colocation.SCHEDULER:
            continue
        for group, counts in sorted(tasks_on(replica, job).items()):
            numbers = [counts.get(task, 0) for task in replica.tasks_of(job)]
            if len(set(numbers)) > 1:
                yield f"{group} has {counts} of {job}"


def size_is_bounded(replica: Replica) -> Iterator[str]:
    """Nothing is kept of peers that are gone and of jobs that nobody knows."""
    known = {*replica.jobs, *replica.completed_jobs, *replica.killed_jobs}
    for job in sorted(set(replica.records) - known):
        yield f"a record of {job}, which nobody knows"
    for key in ("peer_state", "peer_sites", "peer_tags"):
        for peer in sorted(getattr(replica, key)):
            if peer not in replica.groups_reverse_index:
                yield f"{key} of {peer}, who is gone"
    if len(replica.left) > LEFT_GROUPS_KEPT_MAX:
        yield f"{len(replica.left)} groups that left"
    for group in sorted(replica.last_sequence):
        if group in replica.left:
            yield f"{group} has left and its sequence is kept"


def sealers_are_on_their_task(replica: Replica) -> Iterator[str]:
    for job in by_job(replica, "sealers"):
        for task, peer in sorted(replica.run(job).sealers.items()):
            if peer not in replica.run(job).allocation.get(task, ()):
                yield f"{peer} is to seal {job}/{task} and is not there"
            if task in replica.run(job).sealed_outputs:
                yield f"{job}/{task} is sealed and has a sealer"


def peers_that_rest_are_on_sources_of_paused_jobs(replica: Replica) -> Iterator[str]:
    for job in by_job(replica, "rested"):
        run, spec = replica.run(job), replica.spec(job)
        there = {peer for task in spec.tasks for peer in run.allocation.get(task.name, ())}
        if not run.is_paused:
            yield f"{job} is not paused, and {sorted(run.rested)} rest"
        if lost := sorted(set(run.rested) - there):
            yield f"{lost} rest and are not on {job}"


def rest_is_of_one_pause_and_version(old: Replica, new: Replica) -> Iterator[str]:
    """Whoever rests does so until the job goes on, or is allocated anew."""
    for job in by_job(old, "rested"):
        before, after = old.run(job), new.run(job)
        same = (before.paused, before.allocation_version) == (
            after.paused,
            after.allocation_version,
        )
        if same and not set(before.rested) <= set(after.rested):
            yield f"{job}: {sorted(before.rested)} rested, now {sorted(after.rested)}"
        if not same and set(before.rested) & set(after.rested):
            yield f"{job}: {sorted(after.rested)} still rest"


def draining_has_no_way_back(old: Replica, new: Replica) -> Iterator[str]:
    for job in by_job(old, "draining"):
        if job in new.jobs and not new.run(job).draining:
            yield f"{job} does not drain any more and has not ended"


def what_was_done_stays(old: Replica, new: Replica) -> Iterator[str]:
    """Partitions and ends of a job are never taken back while it runs, suspended or not."""
    for job in sorted(set(new.jobs).intersection(old.jobs)):
        pairs = {"partitions": (old.partitions(job), new.partitions(job))}
        for key in ("exhausted_partitions", "exhausted_inputs", "sealed_outputs"):
            pairs[key] = (getattr(old.run(job), key), getattr(new.run(job), key))
        for key, (before, after) in pairs.items():
            if not set(before) <= set(after):
                yield f"{key} of {job} were {sorted(before)}, now {sorted(after)}"


def dead_groups_stay_away(replica: Replica) -> Iterator[str]:
    for group in replica.groups:
        if group in replica.left:
            yield f"{group} came back"


def version_grows(old: Replica, new: Replica) -> Iterator[str]:
    if new.version <= old.version:
        yield f"{old.version} is followed by {new.version}"


def allocation_version_tells_changes(old: Replica, new: Replica) -> Iterator[str]:
    """The version of a running job changes if and only if its allocation or its ackers do."""
    for job in new.jobs:
        before, after = old.run(job).allocation_version, new.run(job).allocation_version
        changed = (old.run(job).allocation, old.run(job).ackers) != (
            new.run(job).allocation,
            new.run(job).ackers,
        )
        if changed != (before != after):
            yield f"{job}: version {before} to {after}, allocation changed: {changed}"
        elif changed and after != new.version:
            yield f"{job}: version {after} was not set by entry {new.version}"


def slots_are_stable(old: Replica, new: Replica) -> Iterator[str]:
    """A peer that stays on its task keeps its slot."""
    for job in by_job(new, "slots"):
        for task, slots in sorted(new.run(job).slots.items()):
            before: Mapping[PeerId, int] = old.run(job).slots.get(task, Map())
            for peer in sorted(slots):
                if peer in before and before[peer] != slots[peer]:
                    yield f"{peer} on {job}/{task} had slot {before[peer]}, now {slots[peer]}"


def nobody_moves_in_vain(old: Replica, new: Replica) -> Iterator[str]:
    """Without tags and colocated jobs, a task loses no more of its peers than its count shrinks."""
    if colocation.SCHEDULER in (new.spec(job).task_scheduler for job in new.jobs):
        return
    for job in by_job(old, "allocation"):
        if not new.run(job).allocation or any(replica_tags(new, job)):
            continue
        for task, before in sorted(old.run(job).allocation.items()):
            there = [peer for peer in before if peer in new.groups_reverse_index]
            after = new.run(job).allocation.get(task, ())
            lost = [peer for peer in there if peer not in after]
            if len(lost) > max(0, len(there) - len(after)):
                yield f"{lost} were moved from {job}/{task} in vain"


def replica_tags(replica: Replica, job: JobId) -> list[tuple[str, ...]]:
    """Tags that tasks of any running job require; tags of one job can move peers of another."""
    return [task.required_tags for each in replica.jobs for task in replica.spec(each).tasks]


def _places(replica: Replica) -> Iterator[tuple[JobId, TaskName, PeerId]]:
    for job in by_job(replica, "allocation"):
        for task in sorted(replica.run(job).allocation):
            for peer in replica.run(job).allocation[task]:
                yield job, task, peer


STATES: Mapping[str, Callable[[Replica], Iterator[str]]] = {
    "R1": allocated_peers_are_members,
    "R2": peers_have_one_task,
    "R3": slots_are_unique,
    "R4": jobs_are_whole,
    "R5": sealers_are_on_their_task,
    "R6": only_running_jobs_have_peers,
    "R7": ring_is_one_cycle,
    "R7-joins": joins_are_separate,
    "R8": members_are_indexed,
    "R9": versions_are_set,
    "R6-suspended": suspended_jobs_have_no_peers,
    "R11": tags_are_kept,
    "R12": size_is_bounded,
    "R14": colocated_jobs_sit_together,
    "R15": options_are_of_tasks_that_run,
    "R16": peers_that_rest_are_on_sources_of_paused_jobs,
    "R17": demands_are_those_found_anew,
    "F4": dead_groups_stay_away,
}

STEPS: Mapping[str, Callable[[Replica, Replica], Iterator[str]]] = {
    "L2": version_grows,
    "R3": slots_are_stable,
    "R9": allocation_version_tells_changes,
    "R10": nobody_moves_in_vain,
    "R13": what_was_done_stays,
    "R13-draining": draining_has_no_way_back,
    "R16": rest_is_of_one_pause_and_version,
}
