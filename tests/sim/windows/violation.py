"""A broken invariant that nobody may catch on the way: tasks take care of every Exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Violation(BaseException):
    """Begins with the name of the invariant."""


def fatal(check: F) -> F:
    """What is asserted in `check` holds, or the run ends here."""

    @wraps(check)
    def checked(*arguments: Any) -> Any:
        try:
            return check(*arguments)
        except AssertionError as error:
            raise Violation(str(error)) from error

    return checked  # type: ignore[return-value]
