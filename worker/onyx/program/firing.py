"""What is done when triggers fire: the user's functions are called, and what they emit is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from onyx.flow.batch import Segments
from onyx.program.folding import Emitting
from onyx.program.trigger_calls import Emitted, TriggerCalls, checked
from onyx.windows.firing import AnyFiring, Firing, FiringRows, Made
from onyx.windows.firing_rows import rows_of


def carry_out(keeper: Emitting, fired: Iterable[AnyFiring]) -> None:
    """Call the users' functions: `sync` at once; and what `emit` gives is sent when durable. What
    was emitted of single groups is looked at as a whole: thousands fire at the end of a job."""
    calls = keeper.calls
    emitted: dict[int, list[Emitted]] = {}
    with calls.failures():
        for firing in _together(calls, fired):
            if isinstance(firing, FiringRows):
                for shard, segments in _of_rows(keeper, firing):
                    keeper.emit(shard, segments)
            elif isinstance(firing, Made):
                if firing.shard not in keeper.closed:
                    keeper.emit(*firing)
                else:
                    keeper.changed(1)  # the period of a group may end then as well
            elif firing.shard not in keeper.closed:
                calls.sync(firing)
                emitted.setdefault(firing.shard, []).append((firing, calls.emit(firing)))
                keeper.changed(1)
            # A timer or watermark after the last firing of a shard: nobody reads what it emits.
        for shard, made in emitted.items():
            keeper.emit(shard, checked(made))


def _of_rows(keeper: Emitting, firing: FiringRows) -> Iterator[tuple[int, Segments]]:
    """What groups that fire together emit, by shard."""
    calls = keeper.calls
    as_they_are = calls.emits_as_they_are(firing)
    for shard in firing.shards:
        if shard in keeper.closed:
            continue
        rows = firing.of(shard)
        calls.sync_rows(firing, rows)
        keeper.changed(len(rows))
        segments = rows if as_they_are else calls.emit_rows(firing, rows)
        if segments is not None:
            yield shard, segments


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
