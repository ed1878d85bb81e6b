"""With how many processes and peers a job runs on this machine
([why](../../../docs/decisions/0173-processes-by-bytes.md)).

What is given is taken. Otherwise a job has one process, unless its files are so large that each
process's share takes longer than another process costs: that can be known before anything starts.
"""

from __future__ import annotations

from msgspec import Struct

from onyx.errors import Problem, UserError
from onyx.model.job import Job
from onyx.model.report import at
from onyx.processes.supervisor import dealt
from onyx.replica.needs import peers_needed
from onyx.replica.spec import SPARK_TAG
from onyx.replica.spec_of_job import spec_of
from onyx.settings import Settings
from onyx.submission.here import FILES, Places
from onyx.telemetry.container import cores

SHARE_BYTES = 33_554_432
"""What each process has of files: a second and more of work, where it costs half of one."""
PROCESSES_MAX = 64


class Crew(Struct, frozen=True):
    """What runs a job here."""

    peers: list[int]
    """How many each process offers."""
    fewest: bool = False
    """Whether these are as few as the job needs."""
    why: str = ""
    """Why there are several processes that nobody has asked for, in a line."""


def crew_here(job: Job, found: Settings, peers: int | None, processes: int | None) -> Crew:
    """What runs a job on this machine.

    Args:
        job: that is to run.
        found: settings of its workers.
        peers: in all, if somebody says so; then it is one process, unless that is said too.
        processes: if somebody says so.

    Raises:
        UserError: the peers are fewer than the job needs.
    """
    if processes is not None or peers is not None:
        number = processes or 1
        return Crew(peers_of_processes(job, peers, number), peers is None and number == 1)
    sizes = [*Places(job, found).sizes_bytes().values()]
    number = _by_bytes(sizes)
    if number > 1:
        number = min(number, cores(), _most(job), PROCESSES_MAX)
    if number < 2:
        return Crew(peers_of_processes(job, None, 1), True)
    why = (
        f"{number} processes for {len(sizes):,} files of {sum(sizes) / 2**20:,.0f} MiB "
        "(--processes 1 for one)"
    )
    return Crew(peers_of_processes(job, None, number), why=why)


def _by_bytes(sizes: list[int]) -> int:
    """How many processes have enough to do. A file is read by one: while it reads the largest, the
    others have as much of the rest."""
    return round(sum(sizes) / max(SHARE_BYTES, *sizes)) if sizes else 1


def _most(job: Job) -> int:
    """In how many processes the job can have a peer of each task. It is one where Spark runs, which
    uses all cores itself, and where an input reads no files: nobody knows how much there is."""
    spec = spec_of(job)
    of_files = all(each.plugin == FILES for each in job.catalog if each.type == "input")
    if not of_files or any(SPARK_TAG in task.required_tags for task in spec.tasks):
        return 1
    limits = [each.max_peers for each in spec.tasks if each.max_peers is not None]
    return min(limits, default=PROCESSES_MAX)


def peers_of_processes(job: Job, peers: int | None, processes: int) -> list[int]:
    """How many peers each process offers, as evenly as possible; a process without one is left out.

    Args:
        job: that is to run.
        peers: in all; if None as many as the job needs, and enough that each process has the whole
            way: one for each task.
        processes: of workers.

    Raises:
        UserError: they are fewer than the job needs.
    """
    least = peers_needed(job)
    needed = sum(least.values())
    total = max(needed, processes * len(least)) if peers is None else peers
    if total < needed:
        raise UserError(
            f"job {job.name} needs {needed} peers, --peers gives {total}: give more, or leave "
            "--peers out"
        )
    return dealt(total, processes)


def fewest_peers(job: Job) -> list[Problem]:
    """Tasks that could have more peers than they get where a job runs with as few as it needs."""
    needed = peers_needed(job)
    return [
        Problem(
            at(at("spec.catalog", index), "maxPeers"),
            f"is {most}, but a run has as few peers as the job needs, {needed[entry.name]} here",
            f"minPeers: {most} asks for all; or give --peers more than {sum(needed.values())}, "
            "which all tasks share",
        )
        for index, entry in enumerate(job.catalog)
        if entry.name in needed and (most := entry.max_peers or 0) > needed[entry.name]
    ]
