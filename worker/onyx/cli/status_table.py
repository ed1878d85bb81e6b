"""How commands print the statuses of jobs.

Names, errors and what workers say come from elsewhere: characters that end a line or move a cursor
are written as escapes.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from onyx.client import failure_text
from onyx.client.statuses import JobStatus, besides, in_a_sentence, remarks
from onyx.replica.authors import escaped
from onyx.reports.measures import TaskMeasures, in_words, requests_in_words

if TYPE_CHECKING:
    from rich.console import Console

WIDTH, WIDTH_MIN = 80, 40
"""Characters of a line; the first where nobody says how wide it is, as in `kubectl exec`."""
INDENT = "    "
TEXT_CHARACTERS_MAX = 20_000
"""Characters of one text that is printed of a job."""
STACKS_MAX = 4
"""Stacks of functions that do not return, printed of one job."""
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
"""What a terminal does: to its first line; clear to the end of the line, or all that is below."""


def print_status(status: JobStatus, as_json: bool) -> None:
    """Print one status after a command. Peers may have acted on the command already. What is
    beside why the job is as it is has lines of its own, or it would look like the cause."""
    if as_json:
        print(json.dumps(msgspec.to_builtins(status)))
        return
    print(_safe(in_a_sentence(status, status.id)))
    for each in filter(None, besides(status)):
        print(INDENT + _safe(each))


def print_statuses(statuses: list[JobStatus], as_json: bool, nothing: str = "") -> None:
    """Print statuses, each with its remarks below; of a single one also the stacks. `nothing`: what
    is said where there are none."""
    print(*_text(statuses, as_json, nothing), sep="\n", flush=True)


def redraw_statuses(statuses: list[JobStatus], as_json: bool, nothing: str = "") -> None:
    """Print statuses in the place of those before, at a terminal; behind them elsewhere.

    What the terminal has no room for is left out: a line that scrolls is no longer in its place.
    """
    if as_json or not sys.stdout.isatty():
        print_statuses(statuses, as_json, nothing)
        return
    columns, rows = shutil.get_terminal_size()
    found = list(_text(statuses, as_json, nothing))
    if len(found) >= rows > 1:
        found[rows - 2 :] = [f"{INDENT}and {len(found) - rows + 2} lines more"]
    drawn = "".join(f"{line[:columns]}{_CLEAR_LINE}\n" for line in found)
    print(f"{_HOME}{drawn}{_CLEAR_BELOW}", end="", flush=True)


def _text(statuses: list[JobStatus], as_json: bool, nothing: str) -> Iterator[str]:
    if as_json:
        yield json.dumps([msgspec.to_builtins(status) for status in statuses])
        return
    if not statuses:
        yield nothing
        return
    width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
    yield from lines(statuses, max(width, WIDTH_MIN))
    if len(statuses) == 1:
        yield from task_lines(statuses[0].tasks)
        yield from _stacks(statuses[0])


def lines(statuses: list[JobStatus], width: int) -> Iterator[str]:
    """Statuses as text: a line for each job, then its remarks.

    The name comes last, because only ids and names may be long: a terminal that is too narrow cuts
    no other column. Where no worker has modules there is no code to show.
    """
    rows: list[tuple[str, ...]] = [
        ("job", "state", "peers", "engine", "code", "name"),
        *((str(s.id), s.state, str(s.peers), s.engine, code(s), _safe(s.name)) for s in statuses),
    ]
    if not any(status.code for status in statuses):
        rows = [(*row[:4], row[5]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    notes = ["", *map(_notes, statuses)]
    for row, note in zip(rows, notes, strict=True):
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
        yield from textwrap.wrap(
            note, width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip


def _notes(status: JobStatus) -> str:
    measured = "" if status.measured is None else in_words(status.measured)
    pending = sum(each.input.in_flight for each in status.tasks if each.input is not None)
    shown = (measured, f"{pending:,} pending" if pending else "", remarks(status))
    return _safe("; ".join(filter(None, shown)))


def _safe(text: str) -> str:
    return escaped(" ".join(text.splitlines()), TEXT_CHARACTERS_MAX)


def task_lines(tasks: Sequence[TaskMeasures]) -> Iterator[str]:
    """What is measured of each task: rates, the part of their time for which its peers work, or
    wait for room downstream, and what waits in front of it."""
    head = ("task", "peers", "in/s", "out/s", "busy", "held", "waiting", "behind")
    rows = [
        (
            _safe(each.task),
            str(each.peers),
            f"{each.in_per_s:,.0f}" if each.counted else "?",
            f"{each.out_per_s:,.0f}" if each.counted else "?",
            f"{each.busy / each.peers:.0%}" if each.peers else "",
            f"{each.backpressured / each.peers:.0%}" if each.peers else "",
            f"{each.queue_segments:,}" if each.peers else "",
            _behind(each),
        )
        for each in tasks
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows) if rows else ():
        name, *numbers = zip(row, widths, strict=True)
        cells = [name[0].ljust(name[1]), *(text.rjust(width) for text, width in numbers)]
        yield INDENT + "  ".join(cells).rstrip()
    for each in tasks:
        if words := "" if each.requests is None else requests_in_words(each.requests):
            yield f"{INDENT}{each.task}: {words}"


def _behind(task: TaskMeasures) -> str:
    its = task.input
    if its is None:
        return ""
    if its.segments_behind is not None:
        return f"{its.segments_behind:,}"
    return "?" if its.bytes_behind is None else f"{its.bytes_behind:,} B"


def code(status: JobStatus) -> str:
    """The hash of the code that all peers of a job run; `mixed` if they run different code."""
    return "mixed" if len(status.code) > 1 else "".join(status.code)


def print_stacks(status: JobStatus, console: Console) -> None:
    """Print where in the user's code the error was raised that killed a job, and for which segment;
    or where functions are that do not return."""
    for line in _stacks(status):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _stacks(status: JobStatus) -> Iterator[str]:
    stacks = [failure_text.stack(each) for each in status.stalls if each.stack][:STACKS_MAX]
    for line in (*failure_text.details(status.exception or {}), *chain.from_iterable(stacks)):
        yield f"  {_safe(line)}"
