"""Letters that lie in no folder: in a topic of Kafka and in a table of a database.

They are read by what the job writes them with, the options of its output. Nothing can be written
beside them that is created once, so whoever redrives them says where marks are kept. What is there
when a call begins is found first, as it is with the parts of a folder: what fails again comes
behind the ends of a topic, and is no row that was seen in the table.

A topic is read from its beginning, by nobody's consumer group. A message is known by its offset; an
Arrow message has several letters, so the number of a row has its place in the message too. A table
is read in the order of ids, some rows in a transaction of their own: one that lasted as long as the
call would keep the job from writing there (SQLite), or dead rows from being removed (PostgreSQL).
Rows of a table have no other name than their letters' ids, so letters without one stay. Of a row
that was seen eight bytes are kept, as of a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.client.redrive.letters import LetterPlace, StoredLetter, WrittenLetter, stored
from onyx.errors import Unavailable, UserError
from onyx.flow.arrays import U64
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.protocol import START, Cursor, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.rights import EVERYTHING

READ_MESSAGES = 500
PATIENCE_S = 30.0
"""How long a topic may give nothing before its end."""
READ_ROWS = 100
"""Rows of one look into a table: each may be a quarter of a megabyte."""
SEEN_ROWS = 10_000
"""Likewise, where only what a letter is known by is read."""
OFFSET = "_offset"
_ROW_BITS = 20
"""The low bits of the number of a row are its place in a message."""
_SHARED = ("bootstrapServers", "topic", "config", "configEnv")
"""Options of Kafka that an input and an output have in common."""
KNOWN_BY = ("id", "job", "task")
"""What a letter in a table is known by, in the order of reading."""


def place_of_output(job: Job, entry: CatalogEntry, data_dir: str) -> LetterPlace:
    """Where an output writes letters, which keeps no parts (`ways.place_of_letters`)."""
    context = context_of(
        job, entry, JobId(job.name), PeerId("redrive"), GroupId("redrive"), SystemClock(), _resolve
    )
    context = replace(context, rights=EVERYTHING, data_dir=data_dir, schema=None)
    return PLACES[entry.plugin or ""](context)


def _resolve(name: str) -> Callable[..., Any]:
    raise UserError(f"{name} cannot be called here: nothing of a job runs in this process")


class TopicLetters:
    """The letters in a topic, partition by partition."""

    at = None
    is_fixed = False

    def __init__(self, context: PluginContext) -> None:
        """Raises UserError: what the output writes are no whole letters, or it cannot be read
        from here."""
        options = context.options
        form = options.get("format", "json")
        if form not in ("json", "arrow"):
            raise UserError(
                f"output {context.task} writes one value of each dead letter (format: {form}): "
                "nothing can be redriven from there; format: json writes the whole letter"
            )
        wanted = {key: options[key] for key in _SHARED if key in options}
        wanted |= {"format": form, "offsetField": OFFSET, "bounded": True}
        wanted |= {"onBadRecord": "segment", "compacted": True}
        self._topic = str(options.get("topic"))
        self._clock = context.clock
        self._input = build_input("kafka", replace(context, options=wanted, batch_format="dicts"))
        self._begin: dict[str, Cursor] = {}

    def __str__(self) -> str:
        return f"topic {self._topic}"

    def parts(self) -> list[str]:
        """Its partitions, with the messages that there are now. Raises like the input."""
        for part in self._input.partitions():
            reader = self._input.open(part, START)
            try:
                self._begin[part] = reader.cursor(0)
            finally:
                reader.close()
        return list(self._begin)

    def letters(self, part: str) -> Generator[StoredLetter | None, None, None]:
        """The letters of a partition; None for a message that is none. Raises like the input."""
        reader = self._input.open(part, self._begin.get(part, START))
        heard_s = self._clock.monotonic_s()
        last, index = -1, 0
        try:
            while not reader.exhausted():
                found = reader.read(READ_MESSAGES)
                if not found and self._clock.monotonic_s() > heard_s + PATIENCE_S:
                    raise Unavailable(f"{part} has given nothing for {PATIENCE_S:.0f} s: try again")
                for each in found:
                    offset = each.pop(OFFSET, last)
                    last, index = offset, index + 1 if offset == last else 0
                    yield stored(each, part, offset << _ROW_BITS | index)
                if found:  # letters may have been processed meanwhile, for minutes
                    heard_s = self._clock.monotonic_s()
        finally:
            reader.close()

    def close(self) -> None:
        """End connections to brokers."""
        self._input.close()


class TableLetters:
    """The letters in a table."""

    at = None
    is_fixed = False

    def __init__(self, context: PluginContext) -> None:
        """Raises UserError: the output is wrong, or its database cannot be reached from here."""
        self._table = str(context.options.get("table"))
        self._output: Any = build_output("sql", context)
        self._seen: U64 | None = None

    def __str__(self) -> str:
        return f"table {self._table}"

    def parts(self) -> list[str]:
        """The table, with the rows that there are now. Raises like the output."""
        numbers = [
            np.array([_number(each) for each in rows], np.uint64)
            for rows in self._pages(KNOWN_BY, SEEN_ROWS)
        ]
        self._seen = np.sort(np.concatenate(numbers)) if numbers else np.zeros(0, np.uint64)
        return [self._table]

    def letters(self, part: str) -> Generator[StoredLetter | None, None, None]:
        """The letters of the table; None for a row that is none. Raises like the output."""
        for _ in range(self._output.rows_without(KNOWN_BY)):
            yield None
        for rows in self._pages(_KEYS, READ_ROWS):
            for row in rows:
                number = _number(row)
                if self._seen is None or _has(self._seen, number):
                    yield stored({key: _plain(row[key]) for key in row}, part, number)

    def close(self) -> None:
        """End connections to the database."""
        self._output.close()

    def _pages(self, keys: tuple[str, ...], most: int) -> Iterator[list[Mapping[str, Any]]]:
        behind: tuple[Any, ...] | None = None
        while rows := self._output.rows_behind(keys, KNOWN_BY, behind, most):
            yield rows
            behind = tuple(rows[-1][key] for key in KNOWN_BY)


_KEYS = tuple(each for each in WrittenLetter.__struct_fields__ if each != "tries")


def _number(row: Mapping[str, Any]) -> int:
    letter = WrittenLetter({}, str(row["job"]), str(row["task"]), "", {}, id=str(row["id"]))
    return StoredLetter(letter, "", 0, 0).key


def _has(numbers: U64, number: int) -> bool:
    place = int(np.searchsorted(numbers, np.uint64(number)))
    return place < len(numbers) and int(numbers[place]) == number


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


PLACES: Mapping[str, Callable[[PluginContext], LetterPlace]] = {
    "kafka": TopicLetters,
    "sql": TableLetters,
}
"""By the plugin of the output."""
