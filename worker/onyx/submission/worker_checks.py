"""What the workers of a tenancy say of a job before it takes the place of another one.

Every member of the moment in which the check is in the log is asked, because any of them may get a
peer of the job: one that lacks a module would end it. Whoever leaves the cluster needs not answer;
whoever joins was not asked, as always when a job is submitted. Pure: it is given the log, entry by
entry, and both the client and the operator follow that anyway.

Questions over gRPC were rejected: clients and the operator need not reach the workers' ports, and
the operator has no gRPC.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from onyx.ids import GroupId, JobId
from onyx.replica import machine
from onyx.replica.commands import check_job, vouch_job
from onyx.replica.entry import Command, Entry
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import NOTHING, Replica

VOUCH_TIMEOUT_S = 30.0
"""Longest wait for the answers of all workers; imports of a new module are part of it."""
NOBODY = "no worker is there to say whether it can be run: start some, then submit it again"
_TOLD_MAX = 3
"""Workers that are named with one and the same problem."""


class Vouching:
    """The answers to one check."""

    def __init__(self, digest: str) -> None:
        """`digest`: of the job, which is in the chunk store."""
        self.check = uuid.uuid4().hex
        self.command = Command(check_job.NAME, {"id": self.check, "digest": digest})
        self._asked: dict[GroupId, str] | None = None
        self._answers: dict[GroupId, tuple[str, ...]] = {}

    def hear(self, entry: Entry, replica: Replica) -> None:
        """The next entry of the log, and the replica after it."""
        args = entry.command.args
        if self._asked is None:
            if entry.command.fn == check_job.NAME and args.get("id") == self.check:
                self._asked = {group: _address(replica, group) for group in replica.groups}
            return
        if entry.command.fn == vouch_job.NAME and args.get("id") == self.check:
            self._answer(args)
        gone = [group for group in self._asked if group not in replica.groups]
        for group in gone:
            del self._asked[group]

    @property
    def complete(self) -> bool:
        """Whether all who were asked have answered or left."""
        return self._asked is not None and self._asked.keys() <= self._answers.keys()

    @property
    def members(self) -> frozenset[GroupId]:
        """Those who were asked and are there."""
        return frozenset(self._asked or ())

    def problems(self) -> tuple[str, ...]:
        """Why it cannot be run, once complete: each with the workers that say so."""
        asked = self._asked or {}
        if not asked:
            return (NOBODY,)
        workers: dict[str, list[str]] = {}
        for group in sorted(asked):
            for problem in self._answers.get(group, ()):
                workers.setdefault(problem, []).append(asked[group])
        return tuple(f"{problem} ({_by(who, len(asked))})" for problem, who in workers.items())

    def silent(self) -> str:
        """Who has not answered, for people."""
        if self._asked is None:
            return "the check did not come into the log"
        left = [where for group, where in sorted(self._asked.items()) if group not in self._answers]
        return f"no answer from {_named(left)}"

    def _answer(self, args: Mapping[str, object]) -> None:
        group, problems = args.get("group"), args.get("problems", ())
        if isinstance(group, str) and isinstance(problems, list | tuple):
            self._answers[GroupId(group)] = tuple(map(str, problems))


def lacks_peers(replica: Replica, former: JobId, submission: Command) -> str:
    """Why a job would have no peers though it takes those of the job in whose place it comes: what
    the entry would come to. Empty if it would have some, or the other has none either."""
    if not any(replica.allocations.get(former, NOTHING).values()):
        return ""
    after = machine.apply(replica, Entry(type(replica.version)(replica.version + 1), submission))
    why = why_waiting(after, JobId(str(submission.args["id"])))
    if why is None:
        return ""
    return f"it would wait while job {former} has ended: it {why.removeprefix('it ')}"


def _address(replica: Replica, group: GroupId) -> str:
    """Where a worker is, as it announced; without peers it has announced nothing."""
    for peer in replica.groups_index.get(group, ()):
        address = replica.peer_sites.get(peer, NOTHING).get("address")
        if address:
            return str(address)
    return str(group)


def _by(who: list[str], asked: int) -> str:
    everyone = "all workers" if asked > 1 else "the worker"
    return everyone if len(who) == asked else f"{len(who)} of {asked} workers: {_named(who)}"


def _named(who: list[str]) -> str:
    more = len(who) - _TOLD_MAX
    told = ", ".join(who[:_TOLD_MAX])
    return f"{told} and {more} more" if more > 0 else told
