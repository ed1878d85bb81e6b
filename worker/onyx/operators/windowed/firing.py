"""What is done when triggers fire: the user's functions are called, and give what is emitted."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import groupby

from onyx.keystate.pages import Made, Page
from onyx.operators.windowed.trigger_calls import Emitted, TriggerCalls, checked
from onyx.windows.firing import AnyFiring, Firing, FiringRows
from onyx.windows.firing_rows import rows_of


def emitted(calls: TriggerCalls, fired: Iterable[AnyFiring], closed: Container[int]) -> Page:
    """Call the users' functions: `sync`, and `emit`, which gives what is made. What was emitted of
    single groups is looked at as a whole: thousands fire at the end of a job.

    Args:
        closed: key groups that have fired for the last time. A timer or a watermark behind that
            calls nothing: nobody reads what it emits.

    Raises:
        UserFunctionError: a function has raised, or gave what cannot be sent.
    """
    page: Page = []
    single: dict[int, list[Emitted]] = {}
    for firing in _together(calls, fired):
        if isinstance(firing, FiringRows):
            page += _of_rows(calls, firing, closed)
        elif isinstance(firing, Made):
            page.append(firing)
        elif firing.shard not in closed:
            calls.sync(firing)
            single.setdefault(firing.shard, []).append((firing, calls.emit(firing)))
    page += [Made(shard, checked(its), firings=len(its)) for shard, its in single.items()]
    return page


def _of_rows(calls: TriggerCalls, firing: FiringRows, closed: Container[int]) -> Iterator[Made]:
    """What groups that fire together emit, by shard."""
    as_they_are = calls.emits_as_they_are(firing)
    for shard in firing.shards:
        if shard in closed:
            continue
        rows = firing.of(shard)
        calls.sync_rows(firing, rows)
        segments = rows if as_they_are else calls.emit_rows(firing, rows)
        yield Made(shard, [] if segments is None else segments, firings=len(rows))


def _together(calls: TriggerCalls, fired: Iterable[AnyFiring]) -> Iterator[AnyFiring]:
    """What fires, with single groups as rows where their trigger takes many at once."""

    def alike(firing: AnyFiring) -> object:
        if not isinstance(firing, Firing) or not calls.take_rows(firing.trigger):
            return None
        return id(firing.trigger), firing.event_type

    for kind, each in groupby(fired, alike):
        firings = list(each)
        rows = rows_of([each for each in firings if isinstance(each, Firing)]) if kind else None
        if rows is None:
            yield from firings
        else:
            yield rows
