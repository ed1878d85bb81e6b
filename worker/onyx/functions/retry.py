"""How a function says that a segment may work the next time: it raises `Retry`, or returns `FAIL`.

Both mean what a flow condition with `action: retry` means: nothing is sent, and the input reads the
root of the segment again. A function that takes many segments returns them for some of these.
`FAIL` is no exception: one exception for all segments would gather the tracebacks of all.
"""

from __future__ import annotations

from typing import Final, final

RETRIES_DEFAULT = 10
"""Retries where nothing is said, for functions and flow conditions."""
RETRIES_MAX = 10_000


class Retry(Exception):
    """The segment is to be read again. It has failed with this exception when it has been read
    again as often as it may."""

    max_retries: int = RETRIES_DEFAULT
    """How often it is read again at most. A subclass may have another number."""

    def __init__(self, why: str = "", max_retries: int | None = None) -> None:
        """
        Args:
            why: what went wrong, for dead letters and reports.
            max_retries: how often the segment is read again at most, 1 to 10,000.
        """
        super().__init__(why)
        if max_retries is not None:
            if type(max_retries) is not int or not 1 <= max_retries <= RETRIES_MAX:
                raise ValueError(
                    f"max_retries of a Retry is {max_retries!r}: give 1 to {RETRIES_MAX:,}"
                )
            self.max_retries = max_retries


@final
class Fail:
    """The type of `FAIL`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "onyx.FAIL"


FAIL: Final = Fail()
"""What a function returns for a segment that is to be read again."""


def failed() -> Retry:
    """What `FAIL` says, as the exception of one segment."""
    return Retry("the function returned onyx.FAIL")


def asked_by(result: object) -> Retry | None:
    """The retry that a result of a function stands for, if it is one."""
    if isinstance(result, Fail):
        return failed()
    return result if isinstance(result, Retry) else None


def retries_of(error: Retry) -> int:
    """How often its segment may be read again; 0 if a subclass says something that is no number of
    retries."""
    most = error.max_retries
    return min(max(most, 0), RETRIES_MAX) if type(most) is int else 0
