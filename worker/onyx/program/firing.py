"""What is done when triggers fire: the user's functions are called, and what they emit is sent."""

from __future__ import annotations

from collections.abc import Iterable

from onyx.program.folding import Folding
from onyx.program.trigger_calls import Emitted, checked
from onyx.windows.firing import Firing


def carry_out(windowing: Folding, firings: Iterable[Firing]) -> None:
    """Call the users' functions: `sync` at once; and what `emit` gives is sent when durable. What
    was emitted is looked at as a whole: thousands of groups fire at the end of a job."""
    calls = windowing.calls
    emitted: dict[int, list[Emitted]] = {}
    with calls.failures():
        for firing in firings:
            if firing.shard in windowing.closed:
                continue  # a timer or watermark after the last firing: nobody reads what it emits
            calls.sync(firing)
            emitted.setdefault(firing.shard, []).append((firing, calls.emit(firing)))
            windowing.changed(1)
        for shard, made in emitted.items():
            windowing.emit(shard, checked(made))
