"""What one simulated job is asked to do whose functions have state, and a table.

Leaves are those of `tests.sim.windows`: each has a bit of its own. What the call for each does is
drawn beforehand, so a call that is made again does the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.sim.keyed.functions import LAPS, STATE, STATE_OF_COLUMNS, STATE_OF_SECOND, Calls, Plan
from tests.sim.windows.columns import draw_formats
from tests.sim.windows.failing import Failing, add_bad, add_to, draw_failing
from tests.sim.windows.story import FUNCTIONS, Leaf, Segment, Story, draw_segments, fall_apart

EVENT_DELAYS_MS = (0, 0, 500, 3_000, 20_000, 70_000)
CLOCK_DELAYS_MS = (0, 20, 500, 5_000, 70_000)


@dataclass(frozen=True, slots=True)
class KeyedStory(Story):
    """One job, drawn from a seed."""

    calls: Calls = field(default_factory=Calls)
    columns: bool = False
    """The function with state is one over columns."""
    ttl_ms: int | None = None
    rows: tuple[tuple[Segment, ...], ...] = ()
    """The table, by partitions of its source."""
    lookup: str | None = None
    """Who looks it up: the `task` before the function, or the `function`."""
    drops: bool = False
    """Leaves that are not in the table go no further."""
    versions: bool = False
    chained: bool = False
    """A second function with state gets what the first one returns."""
    asked: bool = False
    """What the function returns gets what it has counted in the group until then."""

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        failing = self.failing.functions(fall_apart)
        calls = self.calls.functions(failing["m:gather"] if self.failing.any else None)
        return FUNCTIONS | failing | calls

    def name_of(self, leaf: int) -> str | None:
        """What the table says of a leaf."""
        bits, time = 1 << leaf, self.leaves[leaf].time
        found = [each for part in self.rows for each in part if each["bits"] == bits]
        if self.versions:
            found = [each for each in found if each["since"] <= time]
            found.sort(key=lambda each: each["since"])
        return found[-1]["name"] if found else None

    def passes(self, leaf: int) -> bool:
        """Whether the function with state gets it."""
        return not self.drops or self.name_of(leaf) is not None


def draw(seed: int) -> KeyedStory:
    choice = random.Random(f"{seed}/keyed")
    real_ms = choice.choice((0, 500, 3_000, 8_000))
    honest = choice.random() < 0.75
    partitions, leaves = draw_segments(choice, real_ms if honest else 8_000)
    columns = choice.random() < 0.25
    ttl_ms = choice.choice((1_000, 3_000, 70_000)) if choice.random() < 0.35 else None
    lookup = choice.choice((None, "task", "task", "function"))
    drops, versions = lookup == "task" and choice.random() < 0.4, choice.random() < 0.4
    versions = versions and lookup == "task"
    rows = _draw_rows(choice, leaves, versions) if lookup else ()
    spec = _spec(choice, real_ms if honest else 0, columns, ttl_ms)
    if lookup:
        _add_table(choice, spec, lookup, drops, versions)
    if choice.random() < 0.3:
        _add_loop(choice, spec)
    chained = choice.random() < 0.4
    if chained:
        _add_second(choice, spec)
    parts = list(map(list, partitions))
    if choice.random() < 0.3 and not versions:
        spec["catalog"][2]["uniquenessKey"] = "key"
        _repeat(choice, parts)
    failing = _add_failing(random.Random(f"{seed}/keyed/failures"), spec, leaves, parts, columns)
    if not failing.any:
        others = [each for each in spec["catalog"] if "state" not in each and "key" not in each]
        draw_formats(random.Random(f"{seed}/keyed/formats"), {"catalog": others})
    plans = [_draw_plan(choice, silent=ttl_ms is None) for _ in leaves]
    asking = random.Random(f"{seed}/keyed/lookups")
    asked = not chained and asking.random() < 0.4
    if asked:
        _add_lookup(asking, spec, columns)
    return KeyedStory(
        spec,
        tuple(map(tuple, parts)),
        leaves,
        real_ms if honest else 0,
        honest,
        failing=failing,
        all_after=choice.random() < 0.3,
        calls=Calls(plans, named=lookup == "function"),
        columns=columns,
        ttl_ms=ttl_ms,
        rows=rows,
        lookup=lookup,
        drops=drops,
        versions=versions,
        chained=chained,
        asked=asked,
    )


def _draw_plan(choice: random.Random, silent: bool) -> Plan:
    def timer() -> tuple[str, int]:
        if choice.random() < 0.5:
            return "event-time", choice.choice(EVENT_DELAYS_MS)
        return "processing-time", choice.choice(CLOCK_DELAYS_MS)

    return Plan(
        own=timer() if choice.random() < 0.3 else None,
        last=timer() if choice.random() < 0.5 else None,
        deletes=choice.random() < 0.1,
        clears=choice.random() < 0.08,
        reverses=choice.random() < 0.1,
        silent=silent and choice.random() < 0.2,
    )


def _draw_rows(
    choice: random.Random, leaves: Mapping[int, Leaf], versions: bool
) -> tuple[tuple[Segment, ...], ...]:
    """Most leaves have a name, the first one always: what is bad passes for it."""
    parts: list[list[Segment]] = [[] for _ in range(choice.randint(1, 3))]
    for leaf in leaves.values():
        if leaf.number and choice.random() < 0.25:
            continue
        row: Segment = {"bits": 1 << leaf.number, "name": f"name {leaf.number}"}
        if not versions:
            choice.choice(parts).append(row)
            continue
        for number in range(choice.randint(1, 3)):
            since = 0 if leaf.number == 0 else max(0, leaf.time + choice.randint(-5, 3) * 1_000)
            each = {**row, "name": f"name {leaf.number}.{number}", "since": since + number}
            choice.choice(parts).append(each)
    return tuple(map(tuple, parts))


def _spec(
    choice: random.Random, disorder_ms: int, columns: bool, ttl_ms: int | None
) -> dict[str, Any]:
    def size() -> int:
        return choice.choice((1, 2, 5, 20))

    read = {
        "name": "read", "type": "input", "plugin": "m:simulated", "batchSize": size(),
        "watermarkKey": "time", "allowedDisorder": [disorder_ms, "milliseconds"],
        "pendingTimeout": choice.choice((1_000, 3_000, 60_000)), "inputRetryTimeout": 500,
        "maxPending": choice.choice((4, 12, 100)),
    }  # fmt: skip
    gather: Segment = {
        "name": "gather", "type": "function", "fn": "m:gather", "batchSize": size(),
        "groupByKey": "g", "minPeers": 1, "fluxPolicy": "continue",
    }  # fmt: skip
    if columns:
        gather |= {"fn": "m:gather_columns", "batchFormat": "arrow", "state": STATE_OF_COLUMNS}
    else:
        gather |= {"state": STATE, "onTimer": "m:due"}
    if ttl_ms is not None:
        gather["stateTtl"] = [ttl_ms, "milliseconds"]
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "pass"], ["pass", "gather"], ["gather", "write"]],
        "catalog": [
            read,
            {"name": "pass", "type": "function", "fn": "m:fall_apart", "batchSize": size()},
            gather,
            {"name": "write", "type": "output", "plugin": "m:simulated", "batchSize": size()},
        ],
        "windows": [],
        "triggers": [],
    }


def _add_table(
    choice: random.Random, spec: dict[str, Any], lookup: str, drops: bool, versions: bool
) -> None:
    table: Segment = {"name": "names", "type": "table", "plugin": "m:table", "key": "bits"}
    if versions:
        table["versionKey"] = "since"
    if choice.random() < 0.3:
        table["refresh"] = [1, "second"]
    catalog, gather = spec["catalog"], spec["catalog"][2]
    if lookup == "function":
        gather["tables"] = ["names"]
    else:
        join: Segment = {"table": "names", "key": "bits", "columns": ["name"]}
        join["how"] = "inner" if drops else "left"
        if versions:
            join["at"] = "time"
        size = choice.choice((1, 2, 5, 20))
        catalog.append({"name": "named", "type": "function", "join": join, "batchSize": size})
        spec["workflow"][1:2] = [["pass", "named"], ["named", "gather"]]
    catalog.append(table)


def _add_loop(choice: random.Random, spec: dict[str, Any]) -> None:
    """Behind what makes leaves these go round, some more often than others: over one task, or
    two."""
    names = choice.choice((("turn",), ("turn", "back")))
    behind = spec["workflow"][1][1]
    path = ["pass", *names, behind]
    spec["workflow"][1:2] = [list(edge) for edge in pairwise(path)]
    for name in names:
        fn = "m:turn" if name == "turn" else "m:same"
        size = choice.choice((1, 2, 5, 20))
        spec["catalog"].append({"name": name, "type": "function", "fn": fn, "batchSize": size})
    last = {"from": [names[-1]], "shortCircuit": True}
    spec["catalog"][-1] |= {"loopTo": "turn", "lapsMax": LAPS}
    spec["flowConditions"] = [
        {**last, "to": ["turn"], "predicate": [">", "laps", 0]},
        {"from": [names[-1]], "to": [behind], "predicate": ["==", "laps", 0]},
    ]


def _add_second(choice: random.Random, spec: dict[str, Any]) -> None:
    spec["workflow"][-1:] = [["gather", "again"], ["again", "write"]]
    again = {
        "name": "again", "type": "function", "fn": "m:again", "groupByKey": "h", "minPeers": 1,
        "fluxPolicy": "continue", "state": STATE_OF_SECOND, "batchSize": choice.choice((1, 5, 20)),
    }  # fmt: skip
    spec["catalog"].append(again)


def _add_lookup(choice: random.Random, spec: dict[str, Any], columns: bool) -> None:
    spec["workflow"].remove(["gather", "write"])
    spec["workflow"] += [["gather", "asked"], ["asked", "write"]]
    join: Segment = {"state": "gather.count", "key": "g", "as": "asked"}
    join["durable"] = choice.random() < 0.3
    size = choice.choice((1, 2, 5, 20))
    asked = {"name": "asked", "type": "function", "join": join, "batchSize": size, "minPeers": 1}
    if columns and choice.random() < 0.5:
        asked["batchFormat"] = "arrow"
    spec["catalog"].append(asked)


def _repeat(choice: random.Random, parts: list[list[Segment]]) -> None:
    """Some leaves come once more, behind others."""
    whole = [each for part in parts for each in part if each["leaves"]]
    for pair in [pair for each in whole for pair in each["leaves"]]:
        if choice.random() < 0.2:
            choice.choice(whole)["leaves"].append(pair)


def _add_failing(
    choice: random.Random,
    spec: dict[str, Any],
    leaves: Mapping[int, Leaf],
    parts: list[list[Segment]],
    columns: bool,
) -> Failing:
    """What fails. Over columns the whole batch does, so nothing may fail for good there."""
    failing = draw_failing(choice, spec, len(leaves))
    if failing is None:
        return Failing()
    failing.asks = choice.random() < 0.5 and not columns
    fn = spec["catalog"][2]["fn"]
    if columns:
        failing.bad = {}
    loop = spec.get("flowConditions", [])
    add_to(spec, failing, choice)
    spec["flowConditions"] += loop
    for entry in spec["catalog"]:
        if entry["name"] == "gather":
            entry["fn"] = fn
        if entry["name"] in ("named", "turn", "back"):
            entry["deadLetter"] = "dead"
    add_bad(parts, failing, choice)
    return failing
