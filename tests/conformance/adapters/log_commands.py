"""Cases of `log_commands.json`: one entry applied to a replica."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.conformance import replicas
from tests.conformance.diffs import diff_difference

from onyx.replica import machine
from onyx.replica.command import Entry
from onyx.replica.state import Replica


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    """None when we answer as the case says."""
    old = replicas.replica(case["old_replica"])
    entry = replicas.entry(case["entry"], old)
    new = machine.apply(old, entry)
    if new.rejected:
        return "the entry is refused"
    if case.get("unchanged") and replace(new, version=old.version) != old:
        return "it changes the replica"
    return (
        difference(replicas.reported(replicas.replica(case["new_replica"])), replicas.reported(new))
        or (diff_difference(case, entry, old, new) if case["diff_checked"] else None)
        or _reactions(case, entry, old, new)
    )


def difference(wanted: dict[str, Any], got: dict[str, Any]) -> str | None:
    """All fields that are not as wanted. Which peer sits where is the solver's choice."""
    names = sorted({*wanted, *got} - _OURS)
    expected = {name: _comparable(name, wanted.get(name)) for name in names}
    found = {name: _comparable(name, got.get(name)) for name in names}
    wrong = [name for name in names if expected[name] != found[name]]
    if not wrong:
        return None
    values = {name: (found[name], expected[name]) for name in wrong}
    return f"{', '.join(wrong)}: (got, wanted) is {values}"


_OURS = {
    "version", "allocation_version", "last_sequence", "rejected", "sealers",
}  # fmt: skip
"""What the original does not have, or has in another place."""


def _comparable(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "allocations":
        return (
            replicas.counts_of(
                {
                    job: {task: len(peers) for task, peers in tasks.items()}
                    for job, tasks in value.items()
                }
            )
            or None
        )
    if name == "peer_tags":
        return {peer: sorted(tags) for peer, tags in value.items()}
    if name == "ackers":
        return {job: len(peers) for job, peers in value.items()}
    if name == "task_slot_ids":
        return {
            job: {task: sorted(slots.values()) for task, slots in tasks.items()}
            for job, tasks in value.items()
        }
    return value


def _reactions(case: dict[str, Any], entry: Entry, old: Replica, new: Replica) -> str | None:
    """Of the actors that are listed; one without an id stands for a group that is not concerned."""
    listed = [(each["actor"].get("id", ""), each["reactions"]) for each in case["reactions"]]
    wanted = replicas.expected_reactions(listed, old, new)
    index = old.groups_reverse_index
    got = replicas.reactions(entry, old, new, {index.get(actor, actor) for actor, _ in listed})
    return None if wanted == got else f"reactions: got {got}, not {wanted}"
