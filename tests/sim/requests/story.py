"""What one simulated job is asked to do whose segments clients hand over.

Some jobs are those of `tests.sim.windows` with another source. The others are plain: they read,
work, write, and some of their segments fail, for good or a few times. Each segment has a number, so
that it can be found in the journal and in outputs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from tests.sim.windows.story import Leaf, Story, draw_story, publishes_late

import onyx
from onyx.flow.leaves import RETRY, ROW
from onyx.functions.retry import RETRIES_DEFAULT

Segment = dict[str, Any]

WINDOWED_SHARE = 0.25
GUARANTEES = ("exactly-once", "at-least-once", "at-least-once")
NEVER_LATE_MS = 100_000_000
"""Clients come in any order."""
RETRIES_OF_BAD = 2
TRIES_MAX = 4
BAD_SHARE, FLAKY_SHARE = 0.06, 0.12


class Broken(onyx.Retry):
    """Fails whenever it is tried."""

    max_retries = RETRIES_OF_BAD


@dataclass(frozen=True, slots=True)
class Asked:
    """Segments that a client hands over at once."""

    id: str
    """Empty: the client does not care, and so cannot ask again."""
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class RequestStory(Story):
    """One job, drawn from a seed."""

    asked: tuple[Asked, ...] = ()
    guarantee: str = "exactly-once"
    windowed: bool = False
    given_up: bool = False
    """`retryMode: none`: what fails once counts as processed."""
    bad: frozenset[int] = frozenset()
    flaky: Mapping[int, int] = field(default_factory=dict)
    """How often it fails before it works, by number."""
    retries_of_bad: int = RETRIES_OF_BAD
    writes_twice: bool = False
    """The output asks for retries too."""
    counts: bool = False
    """A function with state is between work and output."""
    tried: Counter[Any] = field(default_factory=Counter)

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        if self.windowed:
            return super(RequestStory, self).functions()
        return {
            "m:work": self._work,
            "m:work_columns": self._work_columns,
            "m:count": self._count,
            "m:write": self._write,
        }

    def only(self, numbers: frozenset[int]) -> RequestStory:
        """As if these segments were all, of a windowed job."""
        segments = [each for asked in self.asked for each in asked.segments]
        there = [each for each in segments if each["n"] in numbers]
        leaves = {pair["number"] for each in there for pair in each["leaves"]}
        bad = {each["bad"] for each in there if "bad" in each}
        failing = replace(self.failing, bad={n: self.failing.bad[n] for n in bad})
        kept: dict[int, Leaf] = {n: leaf for n, leaf in self.leaves.items() if n in leaves}
        return replace(self, leaves=kept, failing=failing)

    def _fails(self, segment: Segment) -> bool:
        number = segment["n"]
        self.tried[number] += 1
        return number in self.bad or self.tried[number] <= self.flaky.get(number, 0)

    def _work(self, segment: Segment) -> Any:
        number = segment["n"]
        if not self._fails(segment):
            return segment
        if number in self.bad:
            raise Broken(str(number))
        return onyx.FAIL if number % 2 else onyx.Retry(str(number))

    def _work_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = [{**row, RETRY: self._fails(row)} for row in batch.to_pylist()]
        assert all(ROW in row for row in rows)
        return pa.RecordBatch.from_pylist(rows)

    def _count(self, segment: Segment, state: Any) -> Segment:
        state.seen = (state.seen or 0) + 1
        return segment

    def _write(self, segment: Segment) -> Any:
        number = segment["n"]
        self.tried[f"write {number}"] += 1
        first = self.tried[f"write {number}"] == 1
        return onyx.FAIL if first and number % 3 == 0 else segment


def draw(seed: int) -> RequestStory:
    choice = random.Random(f"{seed}/requests")
    late = publishes_late(seed)  # then there is something to commit
    if choice.random() < WINDOWED_SHARE and not late:
        return _windowed(seed, choice)
    guarantees = GUARANTEES[:1] if late else GUARANTEES
    found = _plain(choice, random.Random(f"{seed}/requests/formats"), guarantees)
    return _with_state(found, random.Random(f"{seed}/requests/state"))


def _options(choice: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"partitions": choice.choice((1, 1, 2, 3))}
    return found | ({"partitionKey": "k"} if choice.random() < 0.5 else {})


def _windowed(seed: int, choice: random.Random) -> RequestStory:
    number = 0
    while True:
        names = ("story", "failures", "formats", "retries")
        found = draw_story(*(random.Random(f"{seed}/{number}/requests/{each}") for each in names))
        if found.honest:
            break
        number += 1
    for entry in found.spec["catalog"]:
        if entry["name"] == "read":
            entry["plugin"] = "requests"
            entry["options"] = _options(choice)
            entry["allowedDisorder"] = [NEVER_LATE_MS, "milliseconds"]
            entry.pop("batchFormat", None)
    segments = [each for part in found.partitions for each in part]
    return RequestStory(
        found.spec,
        (),
        found.leaves,
        NEVER_LATE_MS,
        True,
        found.reduces,
        found.failing,
        found.all_after,
        asked=_asked(choice, segments),
        windowed=True,
    )


def _plain(
    choice: random.Random, formats: random.Random, guarantees: Sequence[str]
) -> RequestStory:
    guarantee = choice.choice(guarantees)
    mode = "individual"
    if guarantee == "at-least-once":
        mode = choice.choice(("individual", "all-after", "all-after", "none"))
    segments: list[Segment] = [{} for _ in range(choice.randint(20, 90))]
    asked = _asked(choice, segments)
    numbers = range(len(segments))
    bad = frozenset(number for number in numbers if choice.random() < BAD_SHARE)
    flaky = {
        number: choice.randint(1, TRIES_MAX)
        for number in numbers
        if number not in bad and choice.random() < FLAKY_SHARE
    }
    columns, writes_twice = choice.random() < 0.25, choice.random() < 0.3
    spec = _plain_spec(choice, guarantee, mode, columns, writes_twice)
    if formats.random() < 0.3:
        spec["catalog"][0]["batchFormat"] = "arrow"
    return RequestStory(
        spec,
        (),
        {},
        0,
        True,
        all_after=mode == "all-after",
        asked=asked,
        guarantee=guarantee,
        given_up=mode == "none",
        bad=bad,
        flaky=flaky,
        retries_of_bad=RETRIES_DEFAULT if columns else RETRIES_OF_BAD,
        writes_twice=writes_twice,
    )


def _plain_spec(
    choice: random.Random, guarantee: str, mode: str, columns: bool, writes_twice: bool
) -> dict[str, Any]:
    def size() -> int:
        return choice.choice((1, 2, 5, 20))

    read = {
        "name": "read", "type": "input", "plugin": "requests", "batchSize": size(),
        "options": _options(choice), "retryMode": mode,
        "pendingTimeout": choice.choice((1_000, 3_000, 60_000)), "inputRetryTimeout": 500,
        "maxPending": choice.choice((4, 12, 100)),
    }  # fmt: skip
    work = {
        "name": "work", "type": "function", "fn": "m:work", "batchSize": size(),
        "deadLetter": "dead",
    }  # fmt: skip
    if columns:
        work |= {"fn": "m:work_columns", "batchFormat": "arrow"}
    write = {"name": "write", "type": "output", "plugin": "m:simulated", "batchSize": size()}
    if writes_twice:
        write["fn"] = "m:write"
    dead = {"name": "dead", "type": "output", "plugin": "m:simulated", "batchSize": size()}
    return {
        "guarantee": guarantee,
        "workflow": [["read", "work"], ["work", "write"]],
        "catalog": [read, work, write, dead],
    }


def _with_state(story: RequestStory, choice: random.Random) -> RequestStory:
    """Some of them, with a function with state before the output."""
    if story.guarantee != "exactly-once" or choice.random() < 0.3:
        return story
    count = {
        "name": "count", "type": "function", "fn": "m:count", "state": {"seen": "value[int]"},
        "groupByKey": "k", "minPeers": 1, "fluxPolicy": "continue",
        "batchSize": choice.choice((1, 2, 5, 20)),
    }  # fmt: skip
    workflow = [["read", "work"], ["work", "count"], ["count", "write"]]
    spec = {**story.spec, "workflow": workflow, "catalog": [*story.spec["catalog"], count]}
    return replace(story, spec=spec, counts=True)


def _asked(choice: random.Random, segments: Sequence[Segment]) -> tuple[Asked, ...]:
    """All segments, numbered, in requests of one or a few."""
    found: list[Asked] = []
    first = 0
    while first < len(segments):
        end = min(len(segments), first + choice.choice((1, 1, 1, 1, 2, 5)))
        numbered = [{**segments[n], "n": n, "k": choice.choice("abcde")} for n in range(first, end)]
        id = f"request {len(found)}" if choice.random() < 0.9 else ""
        found.append(Asked(id, tuple(numbered)))
        first = end
    return tuple(found)
