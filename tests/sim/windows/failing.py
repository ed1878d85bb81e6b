"""Segments that fail in the simulated job, and what must come of each.

A *bad* segment fails for good, in one of several places: it must come out once as a dead letter,
and count nowhere. A *flaky* one fails a few times and is retried: it must count once, like any
other. In some jobs functions ask for their retries themselves (`onyx.FAIL`, `onyx.Retry`), in
others flow conditions do.
How often it has been tried is kept by the world, so that no death of a process makes it forget.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import onyx

Segment = dict[str, Any]

BAD_MAX = 6
FLAKY_TRIES_MAX = 4
RETRIES_OF_BAD = 2


class Broken(Exception):
    """Fails whenever it is tried."""


class Flaky(Exception):
    """May work the next time."""


class BrokenAsking(onyx.Retry):
    """Fails whenever it is tried, and asks to be tried again."""

    max_retries = RETRIES_OF_BAD


@dataclass
class Failing:
    """What fails in one story."""

    bad: Mapping[int, str] = field(default_factory=dict)
    """Where a bad segment fails, by its number."""
    flaky: Mapping[int, int] = field(default_factory=dict)
    """How often a leaf fails before it works."""
    tried: Counter[Any] = field(default_factory=Counter)
    asks: bool = False
    """Functions ask for retries, and no condition does."""

    def functions(self, fall_apart: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        """Those of the job that may fail: of `pass`, `gather` and `write`."""
        broken = BrokenAsking if self.asks else Broken

        def passing(segment: Segment) -> Any:
            number = segment.get("bad")
            if number is None:
                return fall_apart(segment)
            if self.bad[number] == "pass":
                raise broken(str(number))
            return _bad_leaf(number, self.bad[number])

        def gathering(segment: Segment) -> Any:
            if self.bad.get(segment.get("bad", -1)) == "gather":
                raise broken(str(segment["bad"]))
            leaf = segment["bits"].bit_length() - 1
            if self.tried[leaf] < self.flaky.get(leaf, 0):
                self.tried[leaf] += 1
                if self.asks:
                    return onyx.FAIL
                raise Flaky(leaf)
            return segment

        def writing(segment: Segment) -> Any:
            text = repr(sorted(segment.items()))
            self.tried[text] += 1
            return onyx.FAIL if self.tried[text] == 1 and not crc32(text.encode()) % 3 else segment

        return {
            "m:fall_apart": passing,
            "m:gather": gathering,
            "m:write": writing,
            "m:is_flaky": is_flaky,
            "m:any": any_,
        }

    @property
    def any(self) -> bool:
        """Whether something fails."""
        return bool(self.bad or self.flaky)

    def letters(self) -> Counter[int]:
        """What must come out as dead letters, each once."""
        return Counter(dict.fromkeys(self.bad, 1))


def is_flaky(event: Any, old: Any, error: Exception, all_new: Any) -> bool:
    return isinstance(error, Flaky)


def any_(*_: Any) -> bool:
    return True


def _bad_leaf(number: int, place: str) -> Segment:
    leaf = {"kind": "leaf", "key": f"bad {number}", "bits": 1, "bad": number}
    leaf |= {"g": "a", "h": "x", "time": 0}
    if place == "group":
        del leaf["g"]
    if place == "window":
        leaf["time"] = "never"
    return leaf


def draw_failing(choice: random.Random, spec: Mapping[str, Any], leaves: int) -> Failing | None:
    """Nothing fails in half of the jobs.

    What is retried may come later than a watermark has come, so nothing is flaky where extents
    fire by watermarks.
    """
    if choice.random() < 0.5:
        return None
    entries = {entry["name"]: entry for entry in spec["catalog"]}
    windows = [each for each in spec["windows"] if each["task"] == "gather"]
    places = ["pass", "gather"]
    if "groupByKey" in entries["gather"]:
        places.append("group")
    if all("windowKey" in window for window in windows):
        places.append("window")
    bad = {number: choice.choice(places) for number in range(choice.randint(1, BAD_MAX))}
    fired_by = {each["type"] for each in spec["triggers"] if each["windowId"] != "again"}
    flaky: dict[int, int] = {}
    if "watermark" not in fired_by:
        flaky = {
            choice.randrange(leaves): choice.randint(1, FLAKY_TRIES_MAX)
            for _ in range(choice.randint(0, 5))
        }
    return Failing(bad, flaky)


def add_to(spec: dict[str, Any], failing: Failing, choice: random.Random) -> None:
    """Retries and dead letters, and an output for these."""
    catalog = {entry["name"]: entry for entry in spec["catalog"]}
    catalog["pass"]["deadLetter"] = catalog["gather"]["deadLetter"] = "dead"
    catalog["gather"]["fn"] = "m:gather"
    if failing.asks:
        catalog["write"]["fn"] = "m:write"
    size = choice.choice((1, 2, 5, 20))
    catalog["dead"] = {
        "name": "dead", "type": "output", "plugin": "m:simulated", "batchSize": size,
    }  # fmt: skip
    spec["catalog"] = list(catalog.values())
    retry = {
        "from": ["pass", "gather"], "to": "none", "thrownException": True, "shortCircuit": True,
        "action": "retry",
    }  # fmt: skip
    spec["flowConditions"] = (
        []
        if failing.asks
        else [
            {**retry, "predicate": "m:is_flaky", "maxRetries": 10_000},
            {**retry, "predicate": "m:any", "maxRetries": RETRIES_OF_BAD},
        ]
    )


def add_bad(partitions: list[list[Segment]], failing: Failing, choice: random.Random) -> None:
    """Bad segments among the others; they have the time of what comes before them."""
    for number in failing.bad:
        part = choice.choice(partitions)
        place = choice.randint(0, len(part))
        time = part[place - 1]["time"] if place else 0
        part.insert(place, {"leaves": [], "time": time, "bad": number})


def number_of(letter: Segment) -> int:
    return int(letter["segment"]["bad"])
