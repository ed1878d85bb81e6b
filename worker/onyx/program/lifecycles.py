"""The user's hooks around a task, compiled once.

`calls` of a lifecycle entry names a function without arguments that returns `{hook: function}`.
Hooks get `(event, lifecycle)` and may return a dict that is merged into the event; those about a
segment of an input task get `(event, (partition, position), lifecycle)`. `start_task` must return
True. `handle_exception` gets `(event, lifecycle, phase, exception)`: the first answer that is not
"defer" wins; when all defer, the job is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from onyx.errors import UserFunctionError, contained
from onyx.model.job import Job, Lifecycle

Event = dict[str, Any]
Hook = Callable[..., Any]
Verdict = Literal["kill", "restart", "defer"]

HOOKS = (
    "start_task",
    "before_task_start",
    "before_batch",
    "after_read_batch",
    "after_apply_fn",
    "after_batch",
    "after_task_stop",
    "after_ack_segment",
    "after_retry_segment",
    "handle_exception",
)


class Lifecycles(msgspec.Struct, frozen=True):
    """The hooks of one task by name, in the order of the job's entries."""

    hooks: Mapping[str, tuple[tuple[Lifecycle, Hook], ...]] = msgspec.field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the task has a hook of this name."""
        return name in self.hooks

    def merge(self, name: str, event: Event) -> None:
        """Call every hook of this name and merge what they return into the event."""
        for lifecycle, hook in self.hooks.get(name, ()):
            answer = _call(lifecycle, name, hook, event, lifecycle)
            if answer is None:
                continue
            if not isinstance(answer, Mapping):
                raise UserFunctionError(
                    f"lifecycle {lifecycle.calls}: {name} returned {type(answer).__name__}; "
                    "return a dict to merge into the event, or None"
                )
            event.update(answer)

    def may_start(self, event: Event) -> bool:
        """Whether every start_task says True; all are asked."""
        answers = [
            _call(lifecycle, "start_task", hook, event, lifecycle)
            for lifecycle, hook in self.hooks.get("start_task", ())
        ]
        return all(answer is True for answer in answers)

    def each_segment(self, name: str, event: Event, message_id: tuple[str, int]) -> None:
        """Call after_ack_segment or after_retry_segment; what they return is not used."""
        for lifecycle, hook in self.hooks.get(name, ()):
            _call(lifecycle, name, hook, event, message_id, lifecycle)

    def verdict(self, event: Event, phase: str, error: BaseException) -> Verdict:
        """What to do about an exception raised in a phase."""
        return self.decides(event, phase, error) or "kill"

    def decides(self, event: Event, phase: str, error: BaseException) -> Verdict | None:
        """What a hook says that is to be done about it; None: none says anything."""
        answers = [
            (
                lifecycle,
                _call(lifecycle, "handle_exception", hook, event, lifecycle, phase, error),
            )
            for lifecycle, hook in self.hooks.get("handle_exception", ())
        ]
        for lifecycle, answer in answers:
            if answer not in ("kill", "restart", "defer"):
                raise UserFunctionError(
                    f"lifecycle {lifecycle.calls}: handle_exception returned {answer!r}; "
                    'return "kill", "restart" or "defer"'
                )
        decided: list[Verdict] = [answer for _, answer in answers if answer != "defer"]
        return decided[0] if decided else None


def compile_lifecycles(job: Job, task: str, resolve: Callable[[str], Hook]) -> Lifecycles:
    """The hooks of a task.

    Raises:
        UserFunctionError: `calls` does not return a mapping of known hooks to functions.
    """
    hooks: dict[str, list[tuple[Lifecycle, Hook]]] = {}
    for lifecycle in job.lifecycles:
        if lifecycle.task not in (task, "all"):
            continue
        calls = _call(lifecycle, "calls", resolve(lifecycle.calls))
        if not isinstance(calls, Mapping):
            raise UserFunctionError(
                f"lifecycle {lifecycle.calls} must return a dict of hooks, "
                f"not {type(calls).__name__}"
            )
        for name, hook in calls.items():
            if name not in HOOKS or not callable(hook):
                raise UserFunctionError(
                    f"lifecycle {lifecycle.calls}: {name!r} is not a hook; "
                    f"known hooks are {', '.join(HOOKS)}"
                )
            hooks.setdefault(name, []).append((lifecycle, hook))
    return Lifecycles({name: tuple(each) for name, each in hooks.items()})


def _call(lifecycle: Lifecycle, name: str, hook: Hook, *arguments: Any) -> Any:
    """An exception stays as it is, for `handle_exception` asks for its type."""
    try:
        return hook(*arguments)
    except Exception:
        raise
    except BaseException as error:
        raise contained(error, f"lifecycle {lifecycle.calls}: {name}") from error
