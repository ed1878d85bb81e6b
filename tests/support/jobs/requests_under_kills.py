"""Requests while workers are killed and stopped, and the proof that each was taken exactly once:
`python -m tests.support.jobs.requests_under_kills --requests 100000 --kills 50 --clients 32`.

Clients send a request again, under its id, until it is answered; some stop asking. Whatever was
answered with `ack` is in the output when the answer comes, behind state too. In the end the output
agrees with what each client has learned (`histories`), and state has counted each segment once.
`--upgrades 3` changes the job meanwhile, with what it keeps. `--through join` has requests go
through something else than a function with state (`KINDS`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.jobs.exactly_once import (
    CHAOS,
    PEERS,
    READY_WAIT_S,
    SESSION_TIMEOUT_S,
    Faults,
    faulted,
)
from tests.support.jobs.histories import Operation, Outcome, violations
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.client.appender import Appender, NotTaken, NotYetTaken
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.replica.command import Entry
from onyx.requests.content import partition_of, parts_of

sys.path.insert(0, str(CHAOS))
from requests_job import LAPS_MAX

MODULE = CHAOS / "requests_job.py"
CLIENTS = 4
SEGMENTS_OF_REQUEST = 3
KEYS = 101
PATIENCE_S = 10.0
IMPATIENT = 7
"""Of so many requests one is given up at once if nobody answers it."""
LOOKED_AT = 4
"""Of so many requests that are processed the output is looked at for one; an even number."""
NAME = "under-kills"
PARTITIONS = 4
LATE_WAIT_S = 30.0
"""How long rows are waited for that an answer has promised, to say how late they were."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Through:
    """What the segments of requests go through, from `note` to `out`."""

    tasks: list[Row]
    edges: list[list[str]]
    checked: Callable[[list[Row]], None]
    """What holds of the output besides what clients have learned."""
    conditions: list[Row] = field(default_factory=list)


def _counted_once(rows: list[Row]) -> None:
    """Each segment has a number of its own in its group."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        numbers[row["key"]].append(row["seen"])
    for key, seen in numbers.items():
        assert sorted(seen) == list(range(1, len(seen) + 1)), f"key {key}"


def _met_itself(rows: list[Row]) -> None:
    """Each segment has met the one of the other side that was made of it."""
    assert all(row["n"] == row["r_n"] and row["key"] == row["r_key"] for row in rows)


def _was_found(rows: list[Row]) -> None:
    """Each segment has what the table says of its key."""
    assert [row for row in rows if row["name"] != f"name {row['key']}"] == []


def _went_round(rows: list[Row]) -> None:
    """Each segment has gone round as often as its number says."""
    wrong = [row for row in rows if row.get("laps", 0) != row["n"] % (LAPS_MAX + 1)]
    assert wrong == []


GROUPED = {"groupByKey": "key", "fluxPolicy": "continue"}
STATE = Through(
    [{"name": "count", "type": "function", "fn": "requests_job:counted",
      "state": {"seen": "value[int]"}, **GROUPED}],
    [["note", "count"], ["count", "out"]],
    _counted_once,
)  # fmt: skip
PROCESSOR = Through(
    [{"name": "count", "type": "function", "processor": "requests_job:Numbered", **GROUPED}],
    [["note", "count"], ["count", "out"]],
    _counted_once,
)
SIDES = ("left", "right")
JOIN = Through(
    [
        *({"name": each, "type": "function", "fn": "requests_job:timed"} for each in SIDES),
        {"name": "meet", "type": "join", "how": "inner", "fluxPolicy": "continue",
         "left": {"task": "left", "key": ["key", "n"], "at": "at"},
         "right": {"task": "right", "key": ["key", "n"], "at": "at", "prefix": "r_"},
         "within": {"before": 0, "after": 0}},
    ],
    [*([a, b] for each in SIDES for a, b in (("note", each), (each, "meet"))), ["meet", "out"]],
    _met_itself,
)  # fmt: skip
LOOP = Through(
    [
        {"name": "pass", "type": "function", "fn": "requests_job:same"},
        {"name": "turn", "type": "function", "fn": "requests_job:lap", "loopTo": "pass",
         "lapsMax": LAPS_MAX},
    ],
    [["note", "pass"], ["pass", "turn"], ["pass", "out"], ["turn", "out"]],
    _went_round,
    [
        {"from": [task], "to": [to], "predicate": f"requests_job:has_{which}laps_left"}
        for task, back in (("pass", "turn"), ("turn", "pass"))
        for to, which in ((back, ""), ("out", "no_"))
    ],
)  # fmt: skip
TABLE = Through(
    [
        {"name": "look", "type": "function",
         "join": {"table": "names", "key": "key", "columns": ["name"]}},
        {"name": "names", "type": "table", "plugin": "sequence", "key": "key",
         "options": {"segments": [{"key": key, "name": f"name {key}"} for key in range(KEYS)]}},
    ],
    [["note", "look"], ["look", "out"]],
    _was_found,
)  # fmt: skip
KINDS = {"table": TABLE, "state": STATE, "processor": PROCESSOR, "join": JOIN, "loop": LOOP}


def manifest(folder: Path, version: int = 0, through: Through = STATE) -> dict[str, Any]:
    """From requests to files, over a function that gives back and what they go through, exactly
    once. Parts roll late, so that who is answered early would not find what follows."""
    out = {"path": str(folder / "out"), "format": "jsonl", "rollSeconds": 20}
    options = {"partitions": PARTITIONS, "partitionKey": "key"}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": NAME},
        "spec": {
            "guarantee": "exactly-once",
            "ackReturns": {"sum": "sum"},
            "workflow": [["in", "note"], *through.edges],
            "flowConditions": through.conditions,
            "catalog": [
                {"name": "in", "type": "input", "plugin": "requests", "maxPeers": 2,
                 "options": options},
                {"name": "note", "type": "function", "fn": "requests_job:noted",
                 "batchSize": 300 + version},
                *through.tasks,
                {"name": "out", "type": "output", "plugin": "files", "maxPeers": 2, "options": out},
            ],
        },
    }  # fmt: skip


def follower(folder: Path) -> dict[str, Any]:
    """A job that copies what the first one has published."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "follower"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["follow", "end"]],
            "catalog": [
                {"name": "follow", "type": "input", "plugin": "job", "maxPeers": 2,
                 "options": {"job": NAME, "task": "out", "partitions": 2, "pollSeconds": 0.2}},
                {"name": "end", "type": "output", "plugin": "files", "maxPeers": 1,
                 "options": {"path": str(folder / "end"), "format": "jsonl", "rollSeconds": 0.5}},
            ],
        },
    }  # fmt: skip


@dataclass
class Story:
    """What has happened, and when: for whoever looks for the cause of an answer that is untrue."""

    lines: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        self.lines.append(f"{time.monotonic() - self.began_s:.2f} s: {text}")


@dataclass
class Parts:
    """The parts of an output, each of which is read once: it never changes."""

    folder: Path
    known: dict[str, frozenset[int]] = field(default_factory=dict)

    def now(self) -> dict[str, frozenset[int]]:
        """The segments of each part that is there now."""
        there = sorted(self.folder.glob("*.jsonl"))
        for part in there:
            if part.name not in self.known:
                self.known[part.name] = frozenset(row["n"] for row in rows_of(part))
        return {part.name: self.known[part.name] for part in there}

    def numbers(self) -> set[int]:
        """The segments in the output now."""
        return set().union(*self.now().values())

    def of(self, number: int) -> list[str]:
        """The parts that have a segment."""
        return [name for name, numbers in self.now().items() if number in numbers]


@dataclass
class Clients:
    """Threads that send requests until each is answered, or until they stop asking."""

    appender: Appender
    requests: int
    parts: Parts
    count: int = CLIENTS
    faults: Story = field(default_factory=Story)
    log: Sequence[Entry] = ()
    """What is in the log of the cluster, as it grows."""
    history: list[Operation] = field(default_factory=list)
    sent_again: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = iter(range(self.requests))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send_all) for _ in range(self.count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _send_all(self) -> None:
        try:
            while (number := self._next()) is not None:
                self.history.append(self._sent(number))
        except Exception as error:
            self.errors.append(error)

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _sent(self, number: int) -> Operation:
        """Send a request to its end."""
        request, ack = f"r{number}", ("ack", "journal")[number % 2]
        rows = list(segments(number))
        held = [row["n"] for row in rows]
        patient = number % IMPATIENT != 0
        tries, began = Story(began_s=self.faults.began_s), len(self.log)
        while True:
            tries("sent")
            try:
                answer = self.appender.append(rows, ack, request, PATIENCE_S if patient else 0.2)
            except NotTaken:
                return Operation(request, held, Outcome.FAIL)
            except NotYetTaken as error:
                tries(str(error))
                if not patient:
                    return Operation(request, held, Outcome.UNKNOWN)
                self.sent_again += 1
            else:
                if ack == "ack" and number % LOOKED_AT == 0:
                    tries(f"answered {answer.status}, values {answer.values}, {answer.errors}")
                    self._check_there(request, rows, tries, began)
                wanted = {"sum": sum(held)} if ack == "ack" else {}
                for key in answer.errors:  # its value is not known any more, and that is said
                    wanted.pop(key, None)
                return Operation(
                    request, held, Outcome.OK, dict(answer.values), wanted, durable=ack == "ack"
                )

    def _check_there(self, request: str, rows: list[Row], tries: Story, began: int) -> None:
        missing = {row["n"] for row in rows} - self.parts.numbers()
        if not missing:
            return
        before, until = set(self.parts.now()), len(self.log)
        untrue_s, late = time.monotonic(), {}
        while missing and (waited_s := time.monotonic() - untrue_s) < LATE_WAIT_S:
            came = missing & self.parts.numbers()
            late |= {n: f"{waited_s:.2f} s later in {self.parts.of(n)}" for n in came}
            missing -= came
            time.sleep(0.05)
        home = partition_of(request, PARTITIONS)
        parts = parts_of(rows, "key", home, PARTITIONS)
        where = {each: [row["n"] for row in part.segments] for each, part in parts.items()}
        raise AssertionError(
            f"{request} is processed, and not in the output: {late} came late, {missing or 'none'} "
            f"never; home {home}, partitions {where}\n"
            + "\n".join(
                [
                    *tries.lines,
                    "and the faults:",
                    *self.faults.lines,
                    f"parts that came since: {sorted(self.parts.now().keys() - before)}",
                    "entries of the log from its first sending to its answer:",
                    *map(str, self.log[began:until]),
                ]
            )
        )


def segments(number: int) -> Iterator[dict[str, Any]]:
    """Of one request: it falls into several partitions."""
    first = number * SEGMENTS_OF_REQUEST
    for n in range(first, first + SEGMENTS_OF_REQUEST):
        yield {"n": n, "key": n % KEYS}


def written(folder: Path, output: str = "out") -> list[Row]:
    parts = sorted((folder / output).glob("*.jsonl"))
    return [row for part in parts for row in rows_of(part)]


def rows_of(part: Path) -> list[Row]:
    return [json.loads(line) for line in part.read_text("utf-8").splitlines()]


def run(
    cluster: Cluster,
    folder: Path,
    requests: int,
    faults: Faults,
    count: int = CLIENTS,
    upgrades: int = 0,
    through: Through = STATE,
    chained: bool = False,
) -> Clients:
    """Send requests through all faults.

    Args:
        count: clients that send at once.
        upgrades: how often the job is changed meanwhile.
        through: what they go through.
        chained: another job follows, whose output agrees with what clients know as well.

    Raises:
        AssertionError: something is lost, doubled or untrue, or the job does not recover.
    """
    chance = random.Random(faults.seed)
    workers = cluster.start_workers(3, PEERS)
    job = cluster.submit(manifest(folder, through=through))
    second = cluster.submit(follower(folder)) if chained else None
    for each in (job, second):
        if each is not None:
            cluster.await_ready(each, READY_WAIT_S)
    story = Story()

    def told(text: str) -> None:
        story(text)
        faults.reported(text)

    every = max(1, (faults.kills + faults.stops) // (upgrades + 1))

    def upgrade(fault: int) -> JobId | None:
        nonlocal job
        version = fault // every
        if fault % every or not 0 < version <= upgrades:
            return None
        job = cluster.submit_after(manifest(folder, version, through), job)
        told(f"upgraded to {job}")
        return job

    tenancy = cluster.settings.tenancy_id  # of another one too jobs may have this name
    with Appender(lambda: addresses_of(cluster.replica), NAME, "in", tenancy=tenancy) as appender:
        parts = Parts(folder / "out")
        clients = Clients(appender, requests, parts, count, story, cluster.entries)
        clients.start()
        faulted(cluster, job, workers, replace(faults, besides=upgrade, reported=told), chance)
        clients.join()
        there = parts.numbers()
        durable = {n for each in clients.history if each.durable for n in each.segments}
        assert durable <= there, "an answer came before its segments were in the output"
    cluster.client.drain(job)
    cluster.await_completed(job, READY_WAIT_S)
    outputs = ["out"]
    if second is not None:
        cluster.await_completed(second, READY_WAIT_S)
        outputs.append("end")
    for output in outputs:
        rows = written(folder, output)
        assert violations(clients.history, Counter(row["n"] for row in rows)) == [], output
        through.checked(rows)
    return clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--upgrades", type=int, default=0)
    parser.add_argument("--through", choices=list(KINDS), default="state")
    parser.add_argument("--chained", action="store_true", help="another job follows")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = Faults(
        given.kills,
        given.stops,
        given.seed,
        rescale=False,
        reported=lambda text: print(text, flush=True),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            ZooKeeperServer(folder / "zookeeper", port=free_port()) as server,
            Cluster(server.address, folder, MODULE, SESSION_TIMEOUT_S) as cluster,
        ):
            kind = KINDS[given.through]
            clients = run(
                cluster, folder, given.requests, faults, given.clients, given.upgrades, kind,
                given.chained,
            )  # fmt: skip
    ends = Counter(each.outcome for each in clients.history)
    print(
        f"{given.requests:,} requests, each as its client learned: {ends[Outcome.OK]:,} taken, "
        f"{ends[Outcome.FAIL]:,} refused, {ends[Outcome.UNKNOWN]:,} given up; "
        f"{clients.sent_again} had to be sent again"
    )


if __name__ == "__main__":
    main()
