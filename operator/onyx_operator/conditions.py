"""Conditions in Kubernetes' usual form, and the patch from one status to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from onyx.errors import Problem

MESSAGE_CHARACTERS_MAX = 2_000
PROBLEMS_MAX = 10
"""Problems of an invalid spec that its condition lists."""

Truth = Literal["True", "False", "Unknown"]
Verdict = tuple[Truth, str, str]
"""Status, reason and message of a condition."""


class KubeEvent(NamedTuple):
    """An event about an object."""

    reason: str
    message: str
    warning: bool = False


def dated(
    verdicts: Mapping[str, Verdict], before: Mapping[str, Any], generation: int, now: str
) -> list[dict[str, Any]]:
    """Conditions as the API has them; the time of one whose status is as before stays.

    Args:
        before: the status that the object has now.
        generation: of the spec that they are about.
        now: the time, as the API writes it.
    """
    old = by_type(before)
    return [
        {
            "type": name,
            "status": truth,
            "reason": reason,
            "message": cut(message),
            "observedGeneration": generation,
            "lastTransitionTime": old[name].get("lastTransitionTime", now)
            if name in old and old[name].get("status") == truth
            else now,
        }
        for name, (truth, reason, message) in verdicts.items()
    ]


def by_type(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of a status, which a user may have written, by their type."""
    listed = status.get("conditions")
    listed = listed if isinstance(listed, list) else []
    return {str(each.get("type")): each for each in listed if isinstance(each, Mapping)}


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one status to another; empty when they are equal."""
    gone = {key: None for key in before if key not in after}
    return gone | {
        key: _difference(before.get(key), value)
        for key, value in after.items()
        if before.get(key) != value
    }


def _difference(before: Any, after: Any) -> Any:
    """A merge patch of nested objects; lists are replaced as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return change(before, after)
    return after


def cut(message: str) -> str:
    """A message as long as a condition takes it."""
    too_long = len(message) > MESSAGE_CHARACTERS_MAX
    return f"{message[: MESSAGE_CHARACTERS_MAX - 3]}..." if too_long else message


def problem_lines(problems: tuple[Problem, ...]) -> str:
    """Problems as text, one a line, `PROBLEMS_MAX` of them at most."""
    lines = [str(problem) for problem in problems[:PROBLEMS_MAX]]
    more = len(problems) - len(lines)
    return "\n".join([*lines, *([f"and {more} more problems"] if more else [])])
