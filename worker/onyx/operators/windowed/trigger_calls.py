"""Calling the user's `sync` and `emit` when triggers fire, and what they emit.

Whoever reads an error of theirs must find the trigger in the job and the line in the code, so the
message has both. It has nothing of the state, which is the user's data.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from onyx.codec.refusals import refused, refused_rows
from onyx.errors import UserError, UserFunctionError, describe_type
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import result_columns
from onyx.keystate.pages import Emission, Page
from onyx.model.job import Trigger
from onyx.model.kinds import EMIT_ROWS
from onyx.program.failure import blamed
from onyx.windows.firing import AnyFiring, Firing, FiringRows, in_rows, row_of, rows_of

Function = Callable[..., Any]
Emitted = tuple[Firing, list[Segment]]
"""What one firing has emitted."""
Called = Literal["sync", "emit"]
"""The key of a trigger that names the function."""


class TriggerCalls:
    """The trigger calls of one task."""

    def __init__(self, functions: Mapping[str, Function], event: Any, columns: bool) -> None:
        """
        Args:
            functions: those that triggers name.
            event: handed on to each of them.
            columns: whether the task takes columns.
        """
        self._functions = functions
        self._event = event
        self._columns = columns

    def take_rows(self, trigger: Trigger) -> bool:
        """Whether the functions of a trigger take many groups at once."""
        return in_rows(trigger, self._columns)

    def sync(self, firing: Firing) -> None:
        """Call the trigger's `sync`, if it has one.

        Raises:
            UserFunctionError: it has raised.
        """
        if firing.trigger.sync is not None:
            self._call_one("sync", firing.trigger.sync, firing)

    def emit(self, firing: Firing) -> list[Segment]:
        """The segments that the trigger's `emit` gives, for `checked`; none without one.

        Raises:
            UserFunctionError: it has raised, gave something else, or takes columns, and none hold
                this firing and those before it.
        """
        name = firing.trigger.emit
        if name is None:
            return []
        if name == EMIT_ROWS:
            return [row_of(firing)]
        return _segments(firing.trigger, self._call_one("emit", name, firing))

    def sync_rows(self, firing: FiringRows, rows: Columns) -> None:
        """Call the trigger's `sync` with rows of a firing, if it has one.

        Raises:
            UserFunctionError: it has raised.
        """
        if firing.trigger.sync is not None:
            self._call("sync", firing.trigger.sync, firing, rows.record_batch)

    def emits_as_they_are(self, firing: FiringRows) -> bool:
        """Whether the rows of a firing are what its trigger emits, and all of them can be sent. Of
        each shard alone it would cost more than anything else: some have a few rows."""
        return firing.trigger.emit == EMIT_ROWS and not refused_rows(firing.rows)

    def emit_rows(self, firing: FiringRows, rows: Columns) -> Columns | None:
        """What the trigger emits for rows of a firing; None: nothing.

        Raises:
            UserFunctionError: its `emit` has raised, or gave what cannot be sent.
        """
        name = firing.trigger.emit
        if name is None:
            return None
        made: Columns | None = rows
        if name != EMIT_ROWS:
            result = self._call("emit", name, firing, rows.record_batch)
            try:
                made = result_columns(result)
            except UserError as error:
                where = _where(firing.trigger, "emit")
                raise UserFunctionError(f"{where}: {error}") from error
        found = [] if made is None else refused_rows(made)
        if found:
            raise _cannot_be_sent(firing.trigger, found[0][1])
        return made

    def _call_one(self, key: Called, name: str, firing: Firing) -> Any:
        if firing.trigger.batch_format == "arrow":
            raise UserFunctionError(
                f"{_where(firing.trigger, key)} takes record batches (batchFormat: arrow), but the "
                "groups or states that fire have values of types that no column holds together: "
                "make them alike, or remove batchFormat"
            )
        return self._call(key, name, firing, firing.state)

    def _call(self, key: Called, name: str, firing: Firing | FiringRows, state: Any) -> Any:
        arguments = (firing.window, firing.trigger, firing.state_event(), state)
        try:
            return self._functions[name](self._event, *arguments)
        except BaseException as error:
            where = _where(firing.trigger, key)
            raise UserFunctionError(blamed(where, error)) from error


def _where(trigger: Trigger, key: Called) -> str:
    """What is at fault."""
    name = trigger.sync if key == "sync" else trigger.emit
    return f"trigger {trigger.id or trigger.type} of window {trigger.window_id}: {key} {name}"


def _segments(trigger: Trigger, made: Any) -> list[Segment]:
    """What an emit function returned: one segment, several or none."""
    if made is None:
        return []
    found = [made] if isinstance(made, dict) else made
    if not isinstance(found, list | tuple):
        raise _refused(trigger, describe_type(made))
    for each in found:
        if not isinstance(each, dict):
            raise _refused(trigger, f"{describe_type(made)} that holds {describe_type(each)}")
    return list(found)


def checked(emitted: Sequence[Emitted]) -> list[Segment]:
    """All segments that were emitted, in order.

    Raises:
        UserFunctionError: one cannot be sent.
    """
    segments = [segment for _, made in emitted for segment in made]
    found = refused(segments)
    if found:
        index, error = found[0]
        firings = [firing for firing, made in emitted for _ in made]
        raise _cannot_be_sent(firings[index].trigger, error)
    return segments


def _cannot_be_sent(trigger: Trigger, error: Exception) -> UserFunctionError:
    where = _where(trigger, "emit")
    return UserFunctionError(f"{where} returned a segment that cannot be sent: {error}")


def _refused(trigger: Trigger, found: str) -> UserFunctionError:
    return UserFunctionError(
        f"{_where(trigger, 'emit')} returned {found}: it must return a dict, a list of dicts or "
        "None"
    )


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
        elif isinstance(firing, Emission):
            page.append(firing)
        elif firing.shard not in closed:
            calls.sync(firing)
            single.setdefault(firing.shard, []).append((firing, calls.emit(firing)))
    page += [Emission(shard, checked(its), firings=len(its)) for shard, its in single.items()]
    return page


def _of_rows(calls: TriggerCalls, firing: FiringRows, closed: Container[int]) -> Iterator[Emission]:
    """What groups that fire together emit, by shard."""
    as_they_are = calls.emits_as_they_are(firing)
    for shard in firing.shards:
        if shard in closed:
            continue
        rows = firing.of(shard)
        calls.sync_rows(firing, rows)
        segments = rows if as_they_are else calls.emit_rows(firing, rows)
        yield Emission(shard, [] if segments is None else segments, firings=len(rows))


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
