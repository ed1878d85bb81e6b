"""`onyx state`: what a job holds at this moment."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JobArgument, JsonOption, LogPlace, TokenPlace
from onyx.client.connection import connect
from onyx.client.query import window_pages
from onyx.client.states.kinds import states_of
from onyx.client.states.state import State
from onyx.client.window_view import EXTENTS_DEFAULT, WindowView, json_line, shown, shown_state
from onyx.codec.questions import encode_place, parse_key, selection
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.settings import Settings
from onyx.transport.state_queries import EXTENTS_MAX

WindowArgument = Annotated[
    str | None,
    Argument(
        "Id of a window, TASK.STATE for a state of a function, or the name of a table, a join "
        "or a task with a processor; without it the states are listed."
    ),
]
KeyOption = Annotated[
    str | None,
    Option(
        "--key",
        'Only this group. 5, true, null, "text", [..] and {..} are read as JSON; anything '
        "else is text as it stands.",
    ),
]
PrefixOption = Annotated[
    str | None,
    Option(
        "--prefix",
        "Groups that begin with this text or list, or have these keys of a dict.",
    ),
]
FirstKeyOption = Annotated[
    str | None, Option("--from-key", "The first group of a range, a number or text.")
]
BeforeKeyOption = Annotated[
    str | None, Option("--to-key", "The group before which the range ends.")
]
FromOption = Annotated[
    str | None,
    Option("--from", "Extents that end here or later: a number, or a time in ISO 8601."),
]
ToOption = Annotated[str | None, Option("--to", "Extents that begin before this.")]
PathOption = Annotated[
    str | None,
    Option(
        "--path",
        "Only what is there in each state: a key of a map or an index of a list, or several in a "
        'JSON list, as ["visits", 0].',
    ),
]
FirstItemOption = Annotated[
    str | None, Option("--from-item", "The first key of a range in a map, or index in a list.")
]
BeforeItemOption = Annotated[
    str | None, Option("--to-item", "The key or index before which that range ends.")
]
ItemsOption = Annotated[
    int | None, Meta(ge=1), Option("--items", "Show so many items of a map or list at most.")
]
LimitOption = Annotated[
    int,
    Meta(ge=1, le=EXTENTS_MAX),
    Option("--limit", "Show so many extents; a page."),
]
AfterOption = Annotated[
    str | None, Option("--after", "The next page: as the page before has said.")
]
AllOption = Annotated[bool, Option("--all", "All pages.")]
DurableOption = Annotated[
    bool, Option("--durable", "Only what no crash takes back, up to 0.1 s later.")
]
ArrowOption = Annotated[
    Path | None,
    Option("--arrow", "Write an Arrow IPC stream to this file; - is the output."),
]


def state(
    job: JobArgument,
    window: WindowArgument = None,
    key: KeyOption = None,
    prefix: PrefixOption = None,
    first_key: FirstKeyOption = None,
    before_key: BeforeKeyOption = None,
    time_from: FromOption = None,
    time_to: ToOption = None,
    path: PathOption = None,
    first_item: FirstItemOption = None,
    before_item: BeforeItemOption = None,
    items: ItemsOption = None,
    limit: LimitOption = EXTENTS_DEFAULT,
    after: AfterOption = None,
    all_pages: AllOption = False,
    durable: DurableOption = False,
    arrow: ArrowOption = None,
    token: TokenPlace = TokenPlace(),
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Show what a window, a function, a join or a processor of a job has gathered until now, or a
    table that it looks up.

    One line an extent: its group, bounds and state; what is about no time has no bounds. It runs
    where workers run: it dials them, with a certificate if they have some. Of a job that has
    ended or is suspended it reads the state log.
    """
    found = token.of(place.to_read())
    if window is None:
        _list_states(found, job, as_json)
        return
    select = selection(
        key, prefix, first_key, before_key, time_from, time_to, after,
        path, first_item, before_item, None if items is None else str(items),
    )  # fmt: skip
    pages = window_pages(found, JobId(job), window, select, limit, durable)
    if arrow is not None:
        last = _write_arrow(arrow, pages, all_pages)
    else:
        last = _show(pages, all_pages, as_json, f"state {window} has no extents{_of_group(key)}")
    if last.next is not None and not all_pages:
        print(
            f"these are {len(last.extents)} extents, and there are more: give --all, or --after "
            f"{encode_place(last.next)}, or a larger --limit",
            file=sys.stderr,
        )


def _list_states(found: Settings, job: str, as_json: bool) -> None:
    with connect(found) as client:
        states = states_of(client.job(client.named(job)))
    if as_json:
        for each in states:
            named = {"state": each.name, "task": each.task, "kind": each.kind}
            print(json.dumps({**named, "grouped": each.grouped}))
    elif states:
        Console().print(names_table(states))
    else:
        print(f"job {job} keeps no state")


def _show(pages: Iterator[WindowView], all_pages: bool, as_json: bool, nothing: str) -> WindowView:
    """Show the first page or all; the last one that was shown."""
    for page in pages:
        if as_json:
            for extent in page.extents:
                print(json_line(extent, page.by_session_key))
        elif page.extents:
            Console().print(extent_table(page))
        else:
            print(nothing)
        if not all_pages or page.next is None:
            return page
    raise AssertionError("there is a page at least")


def _write_arrow(path: Path, pages: Iterator[WindowView], all_pages: bool) -> WindowView:
    """Write the first page or all as one record batch: only all keys and states together say what
    type holds them."""
    import pyarrow as pa

    found = list(pages) if all_pages else [next(pages)]
    extents = chain.from_iterable(page.extents for page in found)
    batch = replace(found[-1], extents=tuple(extents)).record_batch()
    to_output = str(path) == "-"
    try:
        sink = pa.PythonFile(sys.stdout.buffer) if to_output else pa.OSFile(str(path), "wb")
        with sink, pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    except OSError as error:
        if to_output and isinstance(error, BrokenPipeError):
            raise  # whoever reads has enough
        raise UserError(f"{path} cannot be written: {error}") from error
    return found[-1]


def _of_group(key: str | None) -> str:
    """For whom nothing was found: perhaps the key is of another type than was meant."""
    if key is None:
        return ""
    group = parse_key(key)
    if isinstance(group, str):
        return f" of the text {json.dumps(group)}"
    kind = {int: "number", bool: "truth value", list: "list", dict: "object"}.get(type(group), "")
    return f" of the {kind or 'value'} {key}; the text is --key '{json.dumps(key)}'"


def extent_table(view: WindowView) -> Table:
    """A row for each extent."""
    key, state = (Column(name, overflow="fold") for name in ("key", "state"))
    bounds = [Column(name, no_wrap=True) for name in ("from", "to")]
    of_session = [Column("session key", overflow="fold")] if view.by_session_key else []
    table = Table(key, *bounds, *of_session, state)
    for extent in view.extents:
        cells = [shown(extent.group), view.bound(extent.lower), view.bound(extent.upper)]
        if view.by_session_key:
            cells.append(shown(extent.session_key))
        # As Text, for `[a]` in a str would be taken for markup.
        table.add_row(*(Text(_printable(each)) for each in (*cells, shown_state(extent.state))))
    return table


def names_table(states: Sequence[State]) -> Table:
    """A row for each state that a job keeps."""
    table = Table("state", "task", "kind", "grouped")
    for each in states:
        table.add_row(each.name, each.task, each.kind, "yes" if each.grouped else "no")
    return table


def _printable(text: str) -> str:
    """Text without what a terminal would obey: whoever sends segments does not command it."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
