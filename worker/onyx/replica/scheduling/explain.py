"""Why a job that was submitted does not run, in one sentence for the person who waits for it.

The counts alone are not enough: peers may be free and yet lack the tags of a task. So the first
task that cannot be served is named; the numbers of peers come after that: all of the cluster,
since waiting helps only where that is enough, and those that are free.
"""

from __future__ import annotations

from itertools import takewhile

from onyx.ids import JobId, TaskName
from onyx.replica.jobs import restless
from onyx.replica.scheduling.colocation import movable
from onyx.replica.scheduling.dealing import by_group
from onyx.replica.scheduling.demand import Demand, count_able, demand, jobs_to_serve
from onyx.replica.scheduling.task_schedulers import TASK_SCHEDULERS
from onyx.replica.spec import SPARK_TAG
from onyx.replica.state import Replica

TASKS_NAMED_MAX = 8
NO_PEERS = "the cluster has none"
WITH_SPARK = (
    f"{SPARK_TAG}: workers with PySpark have it, by pip install 'onyx-on-kubernetes[spark]', or by "
    "the image onyx-worker:VERSION-spark"
)


def why_waiting(replica: Replica, job: JobId) -> str | None:
    """What a running job without peers waits for; None for every other job."""
    if job not in replica.jobs or any(replica.run(job).allocation.values()):
        return None
    if replica.run(job).suspended:
        then = "finish what is pending" if replica.run(job).draining else "go on"
        return f"`onyx resume {job}` lets it {then}"
    needs = demand(replica, job)
    if needs.scheduler not in TASK_SCHEDULERS:
        known = ", ".join(TASK_SCHEDULERS)
        return f"it names {needs.scheduler} as its task scheduler, and there are only {known}"
    if needs.batches == 0:
        return _lacking_process(replica, needs)
    unserved = (_lacking_tags(replica, needs, task) for task in needs.tasks)
    return next((each for each in unserved if each), None) or _lacking_peers(replica, needs)


def why_paused(replica: Replica, job: JobId) -> str:
    """What becomes of a job whose inputs read nothing new; empty for every other one."""
    if not replica.run(job).is_paused:
        return ""
    left = restless(replica, job)[:TASKS_NAMED_MAX]
    what = f"segments of {', '.join(left)} are in flight" if left else "nothing is in flight"
    return f"its inputs are paused for an upgrade, and {what}: `onyx resume {job}` lets it go on"


def displaced(replica: Replica, job: JobId) -> bool:
    """Whether a job that ran has no peers any more because others have them: no worker had left
    when it lost them, the cluster has enough for it, and the job scheduler deals otherwise."""
    run = replica.run(job)
    if not run.displaced or run.suspended or any(run.allocation.values()):
        return False
    needed = demand(replica, job).lower
    return replica.peers_free < needed <= len(replica.peers)


def _lacking_tags(replica: Replica, demand: Demand, task: TaskName) -> str | None:
    """A task whose tags too few peers have, busy or not."""
    required = replica.spec(demand.job).by_name[task].required_tags
    least = demand.least(task)
    able = count_able(replica.peer_kinds, [required])
    if not required or able >= least:
        return None
    needs = "a peer" if least == 1 else f"{least} peers"
    has = "no peer has them" if not able else f"{able} {'has' if able == 1 else 'have'} them"
    found = f"task {task} needs {needs} with tags [{', '.join(required)}]; {has}"
    lacks_spark = SPARK_TAG in required and not able
    return f"{found} ({WITH_SPARK})" if lacks_spark else found


def _lacking_process(replica: Replica, demand: Demand) -> str:
    """No process has a peer for each task of a colocated job."""
    groups = by_group(replica, movable(replica, demand.job))
    most = max(map(len, groups.values()), default=0)
    needed = _peers(len(demand.tasks))
    return f"is colocated and needs {needed} in one process, one for each task; {most} at most are"


def _lacking_peers(replica: Replica, demand: Demand) -> str:
    needed, free = demand.lower, replica.peers_free
    named = ", ".join(f"{task} {demand.least(task)}" for task in demand.tasks[:TASKS_NAMED_MAX])
    more = ", ..." if len(demand.tasks) > TASKS_NAMED_MAX else ""
    there = f"the cluster has {len(replica.peers)}, {free} of them free"
    sentence = f"needs {_peers(needed)} ({named}{more}); {there if replica.peers else NO_PEERS}"
    if displaced(replica, demand.job):
        return f"{sentence}; it ran until the job scheduler gave its peers to other jobs"
    fits = needed <= len(replica.peers)
    if free < needed and fits and replica.job_scheduler == "balanced":
        return f"{sentence}; jobs of its priority or a higher one have the others"
    if free < needed and not (fits and replica.job_scheduler == "percentage"):
        return sentence
    return f"{sentence}, but {_reason(replica, demand)}"


def _reason(replica: Replica, demand: Demand) -> str:
    if replica.job_scheduler == "percentage":
        before = takewhile(lambda job: job != demand.job, jobs_to_serve(replica))
        total = demand.share + sum(replica.spec(job).percentage or 0 for job in before)
        if total > 100:
            return (
                f"its percentage and those of the jobs before it make up {total}: beyond 100 the "
                "percentage job scheduler gives no peers until one of those has ended"
            )
        return (
            f"its percentage is {demand.share}: the percentage job scheduler gives it that share "
            f"of {_peers(len(replica.peers))}"
        )
    if demand.scheduler == "percentage":
        shares = ", ".join(f"{task} {demand.task_shares.get(task, 0):g}" for task in demand.tasks)
        return f"by their percentages ({shares}) some task would have too few"
    if replica.job_scheduler == "greedy" and len(jobs_to_serve(replica)) > 1:
        return "the greedy job scheduler gives all peers to the first job"
    return "no placement satisfies the tags and shares of all jobs"


def _peers(count: int) -> str:
    return "1 peer" if count == 1 else f"{count} peers"
