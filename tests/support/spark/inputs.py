"""Inputs without end that jobs in tests name: segments of some partitions, as far as allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Cursor, Input, PluginContext


class Fed(Input):
    """The option `feed` names a file: `{"partitions": {name: segments}, "upTo": n, "ends": bool}`.
    At most `upTo` segments of each partition are there yet; `aRead` come with a read."""

    cooperative = True

    def __init__(self, context: PluginContext) -> None:
        self._path = Path(context.options["feed"])
        self._a_read = context.options.get("aRead", 3)

    def partitions(self) -> list[str]:
        return sorted(self._fed()["partitions"])

    def open(self, partition: str, cursor: Cursor) -> IndexedReader:
        def fetch(first: int, most: int) -> list[dict[str, Any]]:
            fed = self._fed()
            there = fed["partitions"][partition][: fed["upTo"]]
            return [dict(each) for each in there[first : first + min(most, self._a_read)]]

        def end() -> int | None:
            fed = self._fed()
            return len(fed["partitions"][partition]) if fed["ends"] else None

        return IndexedReader(cursor.position, fetch, end)

    def close(self) -> None:
        pass

    def _fed(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path.read_text())
        return found


def fed(context: PluginContext) -> Fed:
    return Fed(context)


def feed(
    path: Path, partitions: dict[str, list[dict[str, Any]]], up_to: int, ends: bool = False
) -> None:
    """Let so many segments of each partition be there."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"partitions": partitions, "upTo": up_to, "ends": ends}))
    new.replace(path)
