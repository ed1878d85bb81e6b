"""Asserts that whoever runs a task calls its operator in the order that `program.operator` states.

The harnesses that run real tasks in the process of the tests use it, so every test of them does:
the bench of peers, the simulator, and queries of Spark without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

ORDER: dict[str, dict[str, str]] = {
    "new": {"restore": "restoring", "restored": "restored"},
    "restoring": {"restore": "restoring", "restored": "restored"},
    "restored": {"resume": "restored", "begin": "between"},
    "between": {
        "begin": "between", "apply": "applied", "look": "looked", "takes": "between",
        "merge": "between", "ends_at": "between", "advance": "firing", "tick": "firing",
        "complete": "firing",
    },
    "applied": {"look": "looked"},
    "looked": {"change": "between", "merge": "looked", "takes": "looked"},
    "firing": {},
}  # fmt: skip
"""By where an operator is, what may be called and where it is then. A batch that is only looked at
has its leaves already: it was kept, or suspects in it were refused. While something fires nothing
of this is called until its last page."""
OF_A_BATCH = ("apply", "look", "change")
"""A task goes through its phases without a batch too, and nothing is done then."""


def watch_operators(module: ModuleType) -> None:
    """Have the operators that a module makes assert the order.

    Args:
        module: makes them with `operator_of`.
    """
    make = module.operator_of
    if make.__module__ == __name__:
        return  # by another harness of this process

    def made(its: Any, context: Any) -> Any:
        operator = make(its, context)
        _Watch(operator, its.task)
        return operator

    module.operator_of = made  # type: ignore[attr-defined]


class _Watch:
    def __init__(self, operator: Any, task: str) -> None:
        self._task, self._at = task, "new"
        for name in sorted({name for allowed in ORDER.values() for name in allowed}):
            setattr(operator, name, self._checked(name, getattr(operator, name)))

    def _checked(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any, **named: Any) -> Any:
            if name in OF_A_BATCH and arguments[0].batch is None:
                return call(*arguments, **named)
            allowed = ORDER[self._at]
            assert name in allowed, f"operator of {self._task}: {name} is called when {self._at}"
            self._at = allowed[name]
            found = call(*arguments, **named)
            if name == "apply" and arguments[0].batch is None:
                self._at = "between"  # all of it was left in the inbox
            return self._pages(found) if self._at == "firing" else found

        return checked

    def _pages(self, pages: Iterator[Any]) -> Iterator[Any]:
        yield from pages
        self._at = "between"
