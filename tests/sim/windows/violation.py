"""A broken invariant. Tasks take care of whatever is raised in them, so it is kept as well, and
raised again behind their back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_broken: list[Violation] = []


class Violation(BaseException):
    """Begins with the name of the invariant."""


@contextmanager
def not_hidden() -> Iterator[None]:
    """What `fatal` finds in this block ends it, whoever catches it in between."""
    _broken.clear()
    try:
        yield
    finally:
        if _broken:
            raise _broken[0]


def fatal(check: F) -> F:
    """What is asserted in `check` holds, or the run ends here."""

    @wraps(check)
    def checked(*arguments: Any) -> Any:
        try:
            return check(*arguments)
        except AssertionError as error:
            _broken.append(Violation(str(error)))
            raise _broken[0] from error

    return checked  # type: ignore[return-value]


def raise_hidden() -> None:
    """Raise what `fatal` has found, if it was caught on another thread."""
    if _broken:
        raise _broken[0]
