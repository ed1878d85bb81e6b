"""The functions that the case file describes in words, and the lifecycles that its cases imply."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

Segment = dict[str, Any]

recorded: list[Segment] = []
extents: dict[tuple[str, str], dict[Any, Any]] = {}
"""Of a task's window: the state of each group and extent when it fired last."""
seen: list[Segment] = []
state: list[int] = [0]
handled: list[str] = []
raised: set[str] = set()
attempts: Counter[int] = Counter()
healed = threading.Event()
HEALED_AFTER_ATTEMPTS = 3


class CaseError(Exception):
    def __init__(self, message: str, data: dict[str, Any]) -> None:
        super().__init__(message)
        self.data = data


def reset() -> None:
    for each in (recorded, seen, handled, raised, attempts):
        each.clear()
    extents.clear()
    state[:] = [0]


def identity(segment: Segment) -> Segment:
    return segment


def summing(total: list[int], segment: Segment) -> Segment:
    total[0] += segment["n"]
    return segment


def adder(amount: int, segment: Segment) -> Segment:
    return {"n": segment["n"] + amount}


def plus(amount: int, segment: Segment) -> Segment:
    return {"n": segment["n"] + amount}


def times(factor: int, segment: Segment) -> Segment:
    return {"n": segment["n"] * factor}


def times_three(segment: Segment) -> Segment:
    return {"n": segment["n"] * 3}


def inc(segment: Segment) -> Segment:
    return {**segment, "n": segment["n"] + 1}


def increment_n(segment: Segment) -> Segment:
    return inc(segment)


def square_n(segment: Segment) -> Segment:
    return {"n": segment["n"] ** 2}


def inc_batch(batch: list[Segment]) -> list[Any]:
    results = [inc(segment) for segment in batch]
    return [[each] if each["n"] % 3 == 0 else each for each in results]


def record(segment: Segment) -> Segment:
    recorded.append(segment)
    return segment


def keep_extent(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> None:
    place = state_event["group_key"], state_event["lower_bound"]
    extents.setdefault((window.task, window.id), {})[place] = state


def raise_some(segment: Segment) -> Segment:
    if segment["n"] == 5:
        raise CaseError("five", {"error": "five"})
    if segment["n"] % 2 == 0:
        raise CaseError("even", {"error": "even", "n": segment["n"]})
    return segment


def even_error(event: Any, old: Any, new: Any, all_new: Any) -> bool:
    return new.data.get("error") == "even"


def five_error(event: Any, old: Any, new: Any, all_new: Any) -> bool:
    return new.data.get("error") == "five"


def to_even(event: Any, segment: Segment, error: Exception) -> Segment:
    return {"error?": True, "value": segment["n"]}


def to_five(event: Any, segment: Segment, error: Exception) -> Segment:
    return {"error?": True, "value": "abc"}


def raise_until_healed(segment: Segment) -> Segment:
    """The case raises for ten seconds; here every segment heals at the same attempt."""
    attempts[segment["n"]] += 1
    if attempts[segment["n"]] < HEALED_AFTER_ATTEMPTS:
        raise ValueError("not healed")
    return inc(segment)


def always(*_: Any) -> bool:
    return True


def even_or_raise(event: Any, old: Segment, new: Any, all_new: Any) -> bool:
    if old["n"] % 2:
        raise ValueError("odd")
    return True


def to_error(event: Any, old_and_new: dict[str, Any], error: Exception) -> Segment:
    value = {key: old_and_new[key] for key in ("old", "new")}
    return {"error?": True, "value": value}


def raises(*_: Any) -> Any:
    raise CaseError("fail", {"x": 50})


def alternate_case(segment: Segment) -> Segment:
    letters = enumerate(segment["name"])
    return {"name": "".join(c.lower() if i % 2 else c.upper() for i, c in letters)}


def exclaim(segment: Segment) -> Segment:
    return {"name": segment["name"] + "!"}


def upper_case(segment: Segment) -> Segment:
    return {"name": segment["name"].upper()}


def interpose_pipe(character: str, segment: Segment) -> Segment:
    return {"name": character.join(segment["name"])}


def interpose_space(character: str, segment: Segment) -> Segment:
    return {"name": character.join(segment["name"])}


def split_sentence(segment: Segment) -> list[Segment]:
    return [{"word": word} for word in segment["sentence"].split()]


def transform_name(prefix: str, suffix: str, segment: Segment) -> Segment:
    return {"name": prefix + segment["name"] + suffix}


def capitalize_names(batch: list[Segment]) -> list[Segment]:
    return [{"name": each["name"].capitalize()} for each in batch]


def _has_status(status: str, new: Segment) -> bool:
    return bool(new["status"] == status)


def admin(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return _has_status("admin", new)


def user(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return _has_status("user", new)


def guest(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return _has_status("guest", new)


def raise_for_guest(segment: Segment) -> Segment:
    if segment["status"] == "guest":
        raise CaseError("guest", {"type": "guest"})
    return segment


def guest_error(event: Any, old: Any, new: Any, all_new: Any) -> bool:
    return bool(new.data.get("type") == "guest")


def add_error(event: Any, segment: Segment, error: Exception) -> Segment:
    return {**segment, "error": "Insufficient access level"}


def odd(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return bool(new["n"] % 2)


def equal_to_5(event: Any, old: Segment, new: Segment, all_new: Any) -> bool:
    return bool(new["n"] == 5)


def sees_batches() -> dict[str, Any]:
    return {"after_batch": lambda event, _: seen.extend(event["batch"])}


def keeps_maximum() -> dict[str, Any]:
    def keep(event: Any, lifecycle: Any) -> None:
        state[0] = max([state[0], *(each["n"] for each in event["batch"])])

    return {"after_batch": keep}


def injects_state() -> dict[str, Any]:
    return {"before_task_start": lambda event, _: {"params": [state]}}


def injects_42() -> dict[str, Any]:
    return {"before_task_start": lambda event, _: {"params": [42]}}


def kills() -> dict[str, Any]:
    def handle(event: Any, lifecycle: Any, phase: str, error: Exception) -> str:
        handled.append(phase)
        return "kill"

    return {"handle_exception": handle}


def restarts() -> dict[str, Any]:
    """Every hook raises at its first call, and the peer restarts; after-batch always, and kills."""

    def raising(name: str) -> Any:
        def hook(event: Any, lifecycle: Any) -> Any:
            if name not in raised or name == "after-batch":
                raised.add(name)
                raise ValueError(f"Threw exception in {name}")
            return True if name == "start-task" else None

        return hook

    def handle(event: Any, lifecycle: Any, phase: str, error: Exception) -> str:
        return "kill" if phase == "lifecycle/after-batch" else "restart"

    names = ("start-task", "before-task-start", "before-batch", "after-read-batch", "after-batch")
    hooks: dict[str, Any] = {name.replace("-", "_"): raising(name) for name in names}
    return {**hooks, "handle_exception": handle}
