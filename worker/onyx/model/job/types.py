"""Types that several parts of a job share: a type with its kind, as `Annotated` takes both."""

from __future__ import annotations

from typing import Annotated

from onyx.model import names
from onyx.model.keys.compound import OneOrMore
from onyx.model.keys.durations import Amount, Duration
from onyx.model.keys.kinds import Integer, PartName
from onyx.model.limits import TIMEOUT_MS_MAX

PEERS_MAX = 10_000
PRIORITY_MAX = 1_000
SQL_CHARACTERS_MAX = 65_536
TRACKED_ONLY = "Not under guarantee: at-most-once, which replays nothing."

TaskName = Annotated[str, PartName("task")]
WindowName = Annotated[str, PartName("window")]
Peers = Annotated[int, Integer(1, PEERS_MAX, "peers")]
Milliseconds = Annotated[int, Duration(1, TIMEOUT_MS_MAX)]
Time = Annotated[tuple[int, str], Amount(names.TIME_UNITS)]
TimeOrElements = Annotated[tuple[int, str], Amount(names.TIME_UNITS + names.ELEMENT_UNITS)]
Targets = Annotated[
    str | tuple[str, ...], OneOrMore(PartName("task"), words=("all", "none"), items_min=0)
]
"""`"all"`, `"none"`, or the names of child tasks."""
