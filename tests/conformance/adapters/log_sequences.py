"""Cases of `log_sequences.json`: the replica, the diff and all reactions after each entry of a log.

Which of several equal peers sits where is the solver's choice. When one leaves that sits elsewhere
with us, the one that sits there leaves instead, and the two have changed names from then on.
"""

from __future__ import annotations

from typing import Any

from tests.conformance import replicas
from tests.conformance.adapters.log_commands import difference
from tests.conformance.diffs import diff_difference

from onyx.replica import jobs, machine
from onyx.replica.command import Entry
from onyx.replica.state import Replica

Names = dict[str, str]


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says; else all steps that differ."""
    replica = Replica(job_scheduler=replicas.short(case["job_scheduler"]))
    groups: set[str] = set()
    names: Names = {}
    wrong, before = [], {}
    for number, step in enumerate(case["steps"]):
        if step["entry"]["fn"] == "leave-cluster":
            names = names | _swapped(before, replica, step["entry"]["args"]["id"])
        entry = replicas.entry(_renamed(step["entry"], names), replica)
        groups.update(
            each
            for each in _renamed(step["entry"], names)["args"].values()
            if isinstance(each, str)
        )
        old, replica = replica, machine.apply(replica, entry)
        found = _step(_renamed(step, names), entry, old, replica, groups)
        if found:
            wrong.append(f"step {number} ({entry.command.NAME}): {found}")
        before = step["replica"]["allocations"]
    steps = len(case["steps"])
    return f"{len(wrong)} of {steps} steps differ: {'; '.join(wrong)}" if wrong else None


def _step(
    step: dict[str, Any], entry: Entry, old: Replica, new: Replica, groups: set[str]
) -> str | None:
    if new.rejected:
        return "the entry is refused"
    listed = [(each["actor"], each["entries"]) for each in step["reactions"]]
    wanted = replicas.expected_reactions(listed, old, new)
    got = replicas.reactions_and_signals(entry, old, new, groups)
    if wanted != got:
        return f"reactions: got {got}, not {wanted}"
    state = replicas.normal(step["replica"]) | {"job_scheduler": new.job_scheduler}
    counts = replicas.counts(new)
    if counts != replicas.counts_of(step["allocation_counts"]):
        return f"counts: got {counts}, not {step['allocation_counts']}"
    return diff_difference(step, entry, old, new) or difference(state, replicas.reported(new))


def _swapped(before: dict[str, Any], replica: Replica, peer: str) -> Names:
    """The names of a peer and of the one of ours that sits where the case has it."""
    for job, tasks in before.items():
        for task, peers in tasks.items():
            there = replica.run(job).allocation.get(task, ())
            if peer in peers and peer not in there and jobs.assignment(replica, peer):
                return {peer: there[0], there[0]: peer}
    return {}


def _renamed(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value
