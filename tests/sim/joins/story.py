"""What one simulated job is asked to do that joins two streams, and what must come of it.

Both streams are of one source, whose segments fall apart into rows of either side. So they come to
the join on two ways, with two watermarks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.sim.windows.columns import OVER_COLUMNS, draw_formats, over_columns
from tests.sim.windows.story import FUNCTIONS, Leaf, Segment, Story, draw_segments
from tests.support.stream_joins import Plain, counted

HOW = ("inner", "left", "right", "outer", "asof")
SPREAD = 64
"""Times are so many times those of segments, so that each row has one of its own."""
SPANS_MS = (0, 1_000, 3_000, 10_000)
PREFIX = "r_"


@dataclass(frozen=True, slots=True)
class JoinStory(Story):
    """One job, drawn from a seed."""

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        found = {"m:lefts": lefts, "m:rights": rights}
        columns = {name + OVER_COLUMNS: over_columns(each) for name, each in found.items()}
        return {**FUNCTIONS, **found, **columns}

    @property
    def latest(self) -> bool:
        """Whether each left row wants the latest right one."""
        return bool(self._entry("meet")["how"] == "asof")

    def results(self, late: Iterable[int]) -> Counter[Any]:
        """What a nested loop makes of all rows that are not late, which it names by number."""
        join, gone = self._entry("meet"), set(late)
        within = join.get("within", {})
        before, after = (within.get(each, [0])[0] for each in ("before", "after"))
        age_max = None if join["how"] == "asof" and "before" not in within else before
        extent = join.get("range", [None])[0]
        keys, prefixes = (("g",), ("of",)), ("", PREFIX)
        plain = Plain(join["how"], keys, age_max, after, extent, prefixes)
        rows: tuple[list[Segment], list[Segment]] = ([], [])
        for leaf in self.leaves.values():
            if leaf.number not in gone:
                rows[is_right(leaf.number)].append(row_of(leaf))
        return counted(plain.join(*rows))


def is_right(number: int) -> bool:
    return number % 2 == 1


def row_of(leaf: Leaf) -> Segment:
    """What the join gets of a leaf."""
    key, number = ("of", "m") if is_right(leaf.number) else ("g", "n")
    return {key: leaf.group, number: leaf.number, "at": leaf.time + leaf.number}


def number_of(row: Mapping[str, Any]) -> int:
    """Of a row of either side."""
    found = row.get("n")
    return int(row["m"] if found is None else found)


def lefts(segment: Segment) -> list[Segment]:
    return _rows(segment, right=False)


def rights(segment: Segment) -> list[Segment]:
    return _rows(segment, right=True)


def _rows(segment: Segment, right: bool) -> list[Segment]:
    leaves = [Leaf(each["number"], each["group"], segment["time"]) for each in segment["leaves"]]
    return [row_of(leaf) for leaf in leaves if is_right(leaf.number) == right]


def draw(seed: int) -> JoinStory:
    choice = random.Random(f"{seed}/joins")
    honest, real_ms = choice.random() < 0.7, choice.choice((0, 500, 3_000, 8_000))
    drawn, found = draw_segments(choice, real_ms)
    disorder_ms = SPREAD * (real_ms if honest else min(real_ms, 500))
    parts = tuple(tuple({**each, "time": SPREAD * each["time"]} for each in part) for part in drawn)
    leaves = {n: replace(leaf, time=SPREAD * leaf.time) for n, leaf in found.items()}
    spec = _spec(choice, disorder_ms, honest)
    others = [each for each in spec["catalog"] if each["type"] != "join"]
    draw_formats(random.Random(f"{seed}/joins/formats"), {"catalog": others})
    return JoinStory(spec, parts, leaves, disorder_ms, honest, all_after=choice.random() < 0.3)


def _spec(choice: random.Random, disorder_ms: int, honest: bool) -> dict[str, Any]:
    def size() -> int:
        return choice.choice((1, 2, 5, 20))

    read = {
        "name": "read", "type": "input", "plugin": "m:simulated", "batchSize": size(),
        "watermarkKey": "time", "allowedDisorder": [disorder_ms, "milliseconds"],
        "pendingTimeout": choice.choice((1_000, 3_000, 60_000)), "inputRetryTimeout": 500,
        "maxPending": choice.choice((4, 12, 100)),
    }  # fmt: skip
    sides = [
        {"name": name, "type": "function", "fn": f"m:{name}", "batchSize": size()}
        for name in ("lefts", "rights")
    ]
    meet = {
        "name": "meet", "type": "join", "minPeers": 1, "batchSize": size(),
        "left": {"task": "lefts", "key": "g", "at": "at"},
        "right": {"task": "rights", "key": "of", "at": "at", "prefix": PREFIX},
        **_draw_spans(choice),
    }  # fmt: skip
    workflow = [["read", "lefts"], ["read", "rights"], ["lefts", "meet"], ["rights", "meet"]]
    outputs = ["write"] if honest else ["write", "late"]
    if not honest:
        meet["lateTo"] = "late"
    return {
        "guarantee": "exactly-once",
        "workflow": workflow + [["meet", name] for name in outputs],
        "catalog": [
            read,
            *sides,
            meet,
            *({"name": name, "type": "output", "plugin": "m:simulated", "batchSize": size()}
              for name in outputs),
        ],
    }  # fmt: skip


def _draw_spans(choice: random.Random) -> dict[str, Any]:
    def span() -> list[Any]:
        return [SPREAD * choice.choice(SPANS_MS), "milliseconds"]

    how = choice.choice(HOW)
    if how == "asof":
        return {"how": how, **({"within": {"before": span()}} if choice.random() < 0.5 else {})}
    if choice.random() < 0.3:
        return {"how": how, "range": [SPREAD * choice.choice(SPANS_MS[1:]), "milliseconds"]}
    return {"how": how, "within": {"before": span(), "after": span()}}
