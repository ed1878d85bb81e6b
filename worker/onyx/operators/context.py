"""What whoever runs a task has for its operator: a peer, or a share of a query of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from onyx.keystate.buckets import Holder
from onyx.keystate.groups import Shards
from onyx.keystate.pages import ROWS_PAGE_MAX
from onyx.program.program import Program

if TYPE_CHECKING:  # not every task has windows
    from onyx.windows.running import Make


def _never() -> Collection[str]:
    """Nothing has ended, as far as is known."""
    return ()


class OperatorContext(NamedTuple):
    """Where an operator works."""

    program: Program
    shards: Shards
    """The key groups of groups."""
    own: Sequence[int]
    """The key groups that it has."""
    holder: Holder
    """Has its states."""
    page_max: int = ROWS_PAGE_MAX
    """So many segments are made at once, where a moment makes many."""
    keep_rows: Callable[[], Any] | None = None
    """Makes what moves rows of a join out of memory (`stream_join.stored.Keep`); None: all stay."""
    memory_rows_max: int = 0
    """So many rows stay in memory; with `keep_rows`."""
    make_elsewhere: Make | None = None
    """Makes windows that another engine aggregates; None: there is none."""
    number: int = 0
    """Which of the operators of its task it is."""
    operators: int = 1
    """How many operators its task has."""
    ended: Callable[[], Collection[str]] = _never
    """The sources that have ended, as far as is known."""
    durable: bool = True
    """Whether whoever takes over goes on from what was recorded last, and not from the beginning of
    what was going on then."""
