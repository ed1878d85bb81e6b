"""Why pods do not run, in Kubernetes' own words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
_TROUBLES_MAX = 3
_OUT_OF_MEMORY = "OOMKilled"
_USUAL = ("ContainerCreating", "PodInitializing")
_LAST_LINES_MAX = 3
_LAST_CHARACTERS_MAX = 400
"""The length of what a container printed before it failed: its end."""


def is_ready(pod: Object) -> bool:
    """Whether all of its containers do what they are for."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def troubles(pods: Sequence[Object]) -> list[str]:
    """Kubernetes' reasons why pods do not start, each with the pods that have it."""
    found: dict[str, list[str]] = {}
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        shown = pod.get("status") or {}
        for why in (*_waiting(shown), *_unscheduled(shown)):
            found.setdefault(why, []).append(str(pod["metadata"]["name"]))
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
        for why, names in list(found.items())[:_TROUBLES_MAX]
    ]


def _waiting(status: Object) -> Iterator[str]:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason and reason not in _USUAL:
            last = (container.get("lastState") or {}).get("terminated") or {}
            ended = f" (it ended with {_ended(last)})" if "exitCode" in last else ""
            yield f"{reason}: {message}{ended}" if message else f"{reason}{ended}"
        last = (container.get("state") or {}).get("terminated") or {}
        if last.get("exitCode"):
            yield f"it ended with {_ended(last)}"


def _ended(last: Object) -> str:
    """The exit code of a container and the last lines that it printed, which are the kubelet's
    termination message."""
    lines = [line.strip() for line in str(last.get("message") or "").splitlines()]
    printed = " / ".join([line for line in lines if line][-_LAST_LINES_MAX:])
    if len(printed) > _LAST_CHARACTERS_MAX:
        printed = f"...{printed[-_LAST_CHARACTERS_MAX:]}"
    code = str(last["exitCode"])
    code += f" ({_OUT_OF_MEMORY})" if last.get("reason") == _OUT_OF_MEMORY else ""
    return f"{code}: {printed}" if printed else code


def _unscheduled(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
