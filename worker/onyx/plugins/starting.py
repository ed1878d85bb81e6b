"""Where a new job begins to read: the option `startFrom`, which means the same for every input.

It holds for partitions that the job has never read, and that no job has read which it upgrades:
what is stored of a partition goes before it. Each input says which of the forms it can do, and why
not the others.

Positions stay what they are, wherever a job begins. Rejected: counting them from there. An upgrade
with another `startFrom` would then give other segments the positions of those in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.errors import Problem, UserError
from onyx.model.keys.durations import Duration
from onyx.model.report import INVALID, Report, listed, nearest
from onyx.plugins.protocol import START, Cursor, Input, PluginContext, StartingInput

if TYPE_CHECKING:  # options are also checked where Arrow is not installed
    from onyx.journal.view import JournalBounds

OPTION = "startFrom"
Form = Literal["beginning", "end", "time", "timeAgo", "recordsAgo", "position", "positions"]
FORMS: tuple[Form, ...] = (
    "beginning", "end", "time", "timeAgo", "recordsAgo", "position", "positions",
)  # fmt: skip
_WORDS: Mapping[str, Form] = {"beginning": "beginning", "end": "end"}
AGO_MS_MAX = 100 * 366 * 86_400_000
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class StartAt(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A place that is neither a word nor a time; one of these."""

    time_ago: int | str | list[Any] | None = None
    """What is as old as this, or newer: `2 hours`, `[30, minutes]`, or milliseconds."""
    records_ago: _Number | None = None
    """So many records before the end of each partition."""
    position: _Number | None = None
    """This position of each partition."""
    positions: dict[str, _Number] | None = None
    """Positions by partition; others are read from their beginning."""


StartFrom = str | StartAt


class Start(msgspec.Struct, frozen=True):
    """What `startFrom` says, read."""

    form: Form = "beginning"
    milliseconds: int = 0
    """A time since 1970, or how long ago."""
    records: int = 0
    """How many ago, or the position in each partition."""
    positions: Mapping[str, int] = field(default_factory=dict)

    def since_ms(self, now_ms: int) -> int | None:
        """The time from which on it reads; None if it goes by something else."""
        if self.form == "timeAgo":
            return now_ms - self.milliseconds
        return self.milliseconds if self.form == "time" else None

    def position(self, partition: str) -> int:
        """The position at which a partition is read first, where it goes by positions."""
        return self.records if self.form == "position" else self.positions.get(partition, 0)


def read_start(given: StartFrom) -> Start:
    """What the option says.

    Raises:
        ValueError: it is no place.
    """
    if isinstance(given, str):
        return Start(_WORDS[given]) if given in _WORDS else _at_time(given)
    named = {name: value for name, value in _named(given).items() if value is not None}
    if len(named) != 1:
        raise ValueError(f"give one of {listed(_named(given))}")
    ((form, value),) = named.items()
    match form:
        case "timeAgo":
            return Start("timeAgo", milliseconds=_ago_ms(value))
        case "positions":
            return Start("positions", positions=value)
        case "recordsAgo":
            return Start("recordsAgo", records=value)
        case _:
            return Start("position", records=value)


def wrong_start(given: StartFrom, refused: Mapping[Form, str]) -> Iterator[Problem]:
    """What is wrong with the option; `refused`: forms that the input cannot do, and why."""
    try:
        form = read_start(given).form
    except ValueError as error:
        shown = repr(given) if isinstance(given, str) else "no place"
        yield Problem(OPTION, f"is {shown}", str(error))
        return
    if form in refused:
        can = listed(each for each in FORMS if each not in refused)
        yield Problem(OPTION, f"is {form}, and {refused[form]}", f"it can be {can}")


def check_partitions(context: PluginContext, start: Start, partitions: Iterable[str]) -> None:
    """Refuse positions of partitions that are not there.

    Raises:
        UserError: there is no such partition.
    """
    known = set(partitions)
    for name in start.positions:
        if name not in known:
            hint = nearest(name, sorted(known)) or "leave it out"
            what = f"option {OPTION!r} has a position for {name!r}, which is no partition; {hint}"
            raise UserError(f"{context.where}: {what}")


def first_cursor(plugin: Input, partition: str) -> Cursor | None:
    """Where a partition is read first; None if nothing of it is read. Raises as `Input.open`."""
    return plugin.start(partition) if isinstance(plugin, StartingInput) else START


def _named(given: StartAt) -> dict[str, Any]:
    return {each.encode_name: getattr(given, each.name) for each in msgspec.structs.fields(StartAt)}


def _at_time(text: str) -> Start:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        named = listed(_named(StartAt()))
        raise ValueError(
            "take beginning, end, a time with its zone, as 2026-11-21T09:00:00Z, or a mapping with "
            f"{named}"
        )
    return Start("time", milliseconds=int(parsed.timestamp() * 1000))


def _ago_ms(value: Any) -> int:
    report = Report()
    found = Duration(0, AGO_MS_MAX).read(value, "", report)
    if found is INVALID:
        raise ValueError(f"timeAgo must be {Duration(0, AGO_MS_MAX).describe()}")
    return int(found)


def position_in(
    bounds: JournalBounds, start: Start, partition: str, now_ms: int, since: Callable[[int], int]
) -> int:
    """The position at which it is read first.

    Args:
        bounds: of what there is.
        since: the first position that was not written before a time.
    """
    since_ms = start.since_ms(now_ms)
    if since_ms is not None:
        return since(since_ms)
    match start.form:
        case "beginning":
            return bounds.first
        case "end":
            return bounds.end
        case "recordsAgo":
            return max(bounds.first, bounds.end - start.records)
        case "positions":
            return start.positions.get(partition, bounds.first)
        case _:
            return start.position(partition)
