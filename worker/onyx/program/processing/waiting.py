"""What a processor may wait for that takes nothing of what has come to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onyx.ids import TaskName
from onyx.program.processor import Parent


def why_left(name: str, parents: Sequence[Parent], waiting: Mapping[TaskName, int]) -> str:
    """In words.

    Args:
        name: of the class.
        parents: from which more may come, or is here.
        waiting: the tasks of which it leaves segments in its inbox, with how many.
    """
    left = _and(f"{count:,} segments of {task}" for task, count in waiting.items())
    said = f"processor {name} leaves {left} in its inbox"
    others = [each for each in parents if each.task not in waiting]
    if not others:
        return (
            f"{said}, and nothing more comes to it from another task: it waits for ever, unless "
            "process takes them or the time is what it waits for"
        )
    said += f" and waits for more of {_and(each.task for each in others)}"
    awaited = frozenset[str]().union(*(each.sources for each in others))
    held = frozenset[str]().union(*(each.sources for each in parents if each.task in waiting))
    if awaited & held:
        said += (
            f", which comes from {_and(sorted(awaited & held))} too: what is left there keeps that "
            "from reading on, so they may wait for each other for ever (take what comes, and keep "
            "it in the state)"
        )
    return said


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
