"""A job upgrades another one, and either may run on Spark: windows, state by key and a join of two
streams go on, and each row is there once, whoever dies meanwhile."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import MOMENT_S, ROUNDS_MAX
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.s3_server import S3Server
from tests.support.spark import functions, inputs, keyed_functions
from tests.support.spark.bench import EngineBench
from tests.support.spark.inputs import feed

from onyx.errors import Unavailable
from onyx.replica.jobs import restless
from onyx.spark.driver.committed import committed
from onyx.spark_query.folding import share_state
from onyx.state.location import open_store

Spec = dict[str, Any]
MODULES = (inputs, functions, keyed_functions)
NAMES = tuple(each.__name__ for each in MODULES)
INPUTS, FUNCTIONS, KEYED = NAMES
RESOLVED = {
    f"{each.__name__}:{name}": value for each in MODULES for name, value in vars(each).items()
}
WIDTH, ROWS, BEFORE = 10, 24, 4
LEFT = {at: [{"key": "xyz"[n % 3], "at": 3 * n + k, "v": n} for n in range(ROWS)]
        for k, at in enumerate("ab")}  # fmt: skip
RIGHT = {"c": [{"key": "xyw"[n % 3], "at": 3 * n + 1, "w": n} for n in range(ROWS)]}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 8)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)
    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", 0)


def spec(folder: Path, engine: str, columns: bool = False, place: str = "") -> Spec:
    form = {"batchFormat": "arrow"} if columns else {}
    grouped = {"groupByKey": "key", "fluxPolicy": "continue", "batchSize": 5, **form}
    counted = {"fn": f"{KEYED}:{'counting_columns' if columns else 'counting'}"}

    def read(name: str) -> Spec:
        return {"name": name, "type": "input", "plugin": f"{INPUTS}:fed", "watermarkKey": "at",
                "allowedDisorder": [2, "milliseconds"], "batchSize": 5,
                "options": {"feed": str(folder / name)}, **form}  # fmt: skip

    def write(name: str) -> Spec:
        return {"name": name, "type": "output", "plugin": "files",
                "options": {"path": f"{place or folder}/{name}", "format": "jsonl"}}  # fmt: skip

    return {
        "engine": engine,
        "guarantee": "exactly-once",
        "workflow": [["left", "fold"], ["fold", "sums"], ["left", "track"], ["track", "counts"],
                     ["left", "both"], ["right", "both"], ["both", "pairs"]],
        "catalog": [
            read("left"), read("right"),
            {"name": "fold", "type": "reduce", **grouped},
            {"name": "track", "type": "function", **counted, **grouped,
             "state": {"count": "value[int]"}},
            {"name": "both", "type": "join", "within": {"before": [BEFORE, "milliseconds"]},
             "left": {"task": "left", "key": "key", "at": "at"}, "batchSize": 5, **form,
             "right": {"task": "right", "key": "key", "at": "at", "prefix": "r_"}},
            write("sums"), write("counts"), write("pairs"),
        ],
        "windows": [{"id": "w", "task": "fold", "type": "fixed", "windowKey": "at",
                     "range": [WIDTH, "milliseconds"], "aggregation": ["sum", "v"]}],
        "triggers": [{"windowId": "w", "type": "watermark", "refinement": "discarding",
                      "postEvictor": ["all"], "emit": f"{FUNCTIONS}:extent"}],
    }  # fmt: skip


class Line:
    """One job after the other, each with the state of the one before."""

    def __init__(self, folder: Path, columns: bool = False, place: str = "") -> None:
        self.folder, self.columns, self.place = folder, columns, place
        self.jobs: list[EngineBench] = []
        self.there(0)

    def there(self, rows: int, ends: bool = False) -> None:
        """So many rows of each partition are there."""
        feed(self.folder / "left", LEFT, rows, ends)
        feed(self.folder / "right", RIGHT, rows, ends)

    def goes_on(self, engine: str, **more: Any) -> EngineBench:
        """The next job."""
        made = {**spec(self.folder, engine, self.columns, self.place), **more}
        peers = {} if engine == "spark" else {"fold": 2, "track": 2, "both": 2}
        last = self.jobs[-1] if self.jobs else None
        new = EngineBench(made, self.folder, NAMES, RESOLVED, peers, last, self.place)
        self.jobs.append(new)
        return new

    def rows(self, output: str) -> Counter[str]:
        parts = open_store(f"{self.place or self.folder}/{output}")
        names = [each.name for each in parts.list("") if each.name.startswith("part-")]
        found = [parts.read(name) or b"" for name in names]
        return texts([json.loads(line) for each in found for line in each.splitlines()])

    def check(self) -> None:
        """Everything has come once."""
        for output, expected in oracle().items():
            assert self.rows(output) == expected, output


def texts(rows: Sequence[Spec]) -> Counter[str]:
    return Counter(json.dumps(each, sort_keys=True) for each in rows)


def counts(rows: Sequence[Spec]) -> Counter[str]:
    seen, found = Counter[str](), []
    for each in rows:
        seen[each["key"]] += 1
        found.append({"key": each["key"], "count": seen[each["key"]]})
    return texts(found)


def oracle() -> dict[str, Counter[str]]:
    left = [each for part in LEFT.values() for each in part]
    sums = Counter[Any]()
    for each in left:
        sums[each["key"], each["at"] // WIDTH * WIDTH] += each["v"]
    pairs = [
        {**one, **{f"r_{name}": value for name, value in other.items()}}
        for one in left
        for other in RIGHT["c"]
        if one["key"] == other["key"] and -BEFORE <= other["at"] - one["at"] <= 0
    ]
    fired = [{"group": key, "lower": lower, "value": v} for (key, lower), v in sums.items()]
    return {"sums": texts(fired), "counts": counts(left), "pairs": texts(pairs)}


def run(job: EngineBench, rounds: int) -> None:
    for _ in range(rounds):
        job.round()
        job.clock.advance(0.1)


@pytest.mark.short(1)
@pytest.mark.parametrize("columns", [False, True], ids=["dicts", "columns"])
def test_a_job_that_stays_on_spark_goes_on_from_its_last_commit(
    columns: bool, tmp_path: Path
) -> None:
    line = Line(tmp_path, columns)
    for rows in (10, 18):
        line.there(rows)
        line.goes_on("spark").settle()
    line.there(ROWS, ends=True)
    last = line.goes_on("spark")
    last.settle()
    assert last.completed, last.exceptions
    line.check()


def test_state_and_parts_may_be_in_a_bucket(
    fake_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_s3.environment.items():
        monkeypatch.setenv(name, value)
    line = Line(tmp_path, place=f"{ObjectStore(fake_s3).url}/engines")
    for engine, rows in (("spark", 10), ("spark", 18), ("peers", ROWS)):
        line.there(rows, ends=rows == ROWS)
        last = line.goes_on(engine)
        last.settle()
    assert last.completed, last.exceptions
    line.check()


def rest(job: EngineBench, dies: str = "") -> None:
    """The job, whatever it is doing, is told to come to rest, and does; `dies`: a task of it, while
    that goes on."""
    job.pause()
    run(job, 3)
    if dies:
        job.crash(job.task(dies))
    for _ in range(ROUNDS_MAX):
        if job.rests:
            return
        run(job, 1)
    raise AssertionError(restless(job.replica(), job.id))


@pytest.mark.short(3)
@pytest.mark.parametrize("dies", ["", "left", "fold", "track", "both", "sums"])
@pytest.mark.parametrize("columns", [False, True], ids=["dicts", "columns"])
def test_a_job_goes_from_spark_to_peers_and_back_while_it_is_busy(
    columns: bool, dies: str, tmp_path: Path
) -> None:
    line = Line(tmp_path, columns)
    line.there(8)
    line.goes_on("spark").settle()
    line.there(ROWS, ends=False)
    busy = line.goes_on("peers")
    busy.start()
    run(busy, 2)
    assert sum(each.runtime.source.in_flight for each in map(busy.task, ("left", "right")))
    rest(busy, dies)
    assert sum(line.rows("counts").values()) < 2 * ROWS
    line.there(ROWS, ends=True)
    last = line.goes_on("spark")
    last.settle()
    assert last.completed, last.exceptions
    line.check()


def test_a_job_that_was_paused_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.there(ROWS, ends=True)
    job = line.goes_on("peers")
    for rounds in (10, 20, 40):
        run(job, rounds)
        rest(job)
        written = line.rows("counts")
        job.settle()
        assert line.rows("counts") == written
        job.resume()
    job.settle()
    assert job.completed, job.exceptions
    line.check()


def test_what_is_in_flight_on_peers_is_for_peers(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.there(ROWS)
    run(line.goes_on("peers"), 30)
    refused = line.goes_on("spark")
    refused.settle()
    assert "segments at task" in refused.exceptions[0]["detail"]
    assert "in flight, and a query of Spark cannot" in refused.exceptions[0]["detail"]
    line.jobs.pop()
    line.there(ROWS, ends=True)
    last = line.goes_on("peers")
    last.settle()
    assert last.completed, last.exceptions
    line.check()


class Dying:
    """The writes of a process to log and store, which dies before one of them or behind it."""

    def __init__(self, job: EngineBench, at: int, behind: bool) -> None:
        self._left, self._behind = at, behind
        self.dead = False
        self._kept = job.log.put_document, job.store.create
        self._job = job
        for owner, name in ((job.log, "put_document"), (job.store, "create")):
            setattr(owner, name, partial(self._write, getattr(owner, name)))

    def _write(self, write: Callable[..., Any], *args: Any) -> Any:
        self._left -= 1
        if self.dead or (self._left < 0 and not self._behind):
            self.dead = True
            raise Unavailable("died")
        done = write(*args)
        if self._left < 0:
            self.dead = True
            raise Unavailable("died")
        return done

    def over(self) -> None:
        self._job.log.put_document, self._job.store.create = self._kept  # type: ignore[method-assign]


@pytest.mark.short(2)
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("at", some_of(range(12)))
def test_a_driver_may_die_at_any_write_while_it_takes_over(
    at: int, behind: bool, tmp_path: Path
) -> None:
    line = Line(tmp_path)
    line.there(10)
    line.goes_on("spark").settle()
    new = line.goes_on("spark")
    dying = Dying(new, at, behind)
    run(new, 30)
    dying.over()
    assert dying.dead
    new.crash(new.task("spark"))
    line.there(ROWS, ends=True)
    new.settle()
    assert new.completed, new.exceptions
    line.check()


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_what_spark_has_committed_and_not_published_is_published_by_the_next_job(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(tmp_path)
    line.there(10)
    old = line.goes_on("spark")

    def away(*_: Any) -> Any:
        if any(query.batch is not None and query.batch.number == 2 for query in old.queries):
            raise Unavailable("no output today")
        return made(*_)

    made = old.build_output
    monkeypatch.setattr(old, "build_output", away)
    run(old, 40)
    last = committed(old.log, old.id)
    assert last is not None
    assert last[0].batch == 2
    line.there(ROWS, ends=True)
    new = line.goes_on(engine)
    new.settle()
    assert new.completed, new.exceptions
    line.check()


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_the_old_query_goes_on_until_it_hears_that_it_was_killed(
    engine: str, tmp_path: Path
) -> None:
    line = Line(tmp_path)
    line.there(16)
    old = line.goes_on("spark")
    run(old, 10)
    new = line.goes_on(engine)
    for number in range(ROUNDS_MAX):
        if number == 12:
            line.there(ROWS, ends=True)
        moved = new.round()
        old.round()
        for each in (old, new):
            each.clock.advance(MOMENT_S)
        if new.completed and not moved:
            break
    assert new.completed, new.exceptions
    assert not old.completed
    line.check()


@pytest.mark.short(2)
@pytest.mark.parametrize("rounds", some_of(range(0, 40, 3)))
def test_a_peer_may_die_while_it_takes_over_from_spark(rounds: int, tmp_path: Path) -> None:
    line = Line(tmp_path, columns=True)
    line.there(16)
    line.goes_on("spark").settle()
    new = line.goes_on("peers")
    run(new, rounds)
    name = ("fold", "left", "both", "track", "pairs")[rounds % 5]
    new.crash(new.task(name))
    line.there(ROWS, ends=True)
    new.settle()
    assert new.completed, new.exceptions
    line.check()


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_a_task_whose_inputs_had_ended_on_spark_begins_with_others_only_when_told(
    engine: str, tmp_path: Path
) -> None:
    line = Line(tmp_path)
    line.there(10)
    feed(tmp_path / "left", LEFT, ROWS, ends=True)
    line.goes_on("spark").settle()
    feed(tmp_path / "left", {**LEFT, "d": LEFT["a"]}, ROWS, ends=True)
    new = line.goes_on(engine)
    new.settle()
    assert not new.completed
    (report,) = {each["task"]: each["detail"] for each in new.exceptions[:1]}.values()
    assert "spec.upgrade.tasks." in report
    assert report.endswith("initialize")


def test_a_job_goes_on_with_another_function_where_the_old_one_failed(tmp_path: Path) -> None:
    line = Line(tmp_path)
    broken = spec(tmp_path, "spark")
    broken["catalog"][3]["fn"] = f"{KEYED}:counting_to_12"
    line.there(ROWS)
    old = line.goes_on("spark", catalog=broken["catalog"])
    old.settle()
    assert "thirteen" in old.exceptions[0]["detail"]
    assert len(line.rows("counts")) > 10
    line.there(ROWS, ends=True)
    new = line.goes_on("spark")
    new.settle()
    assert new.completed, new.exceptions
    line.check()


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_what_is_initialized_begins_anew_and_the_rest_goes_on(engine: str, tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.there(16)
    line.goes_on("spark").settle()
    line.there(ROWS, ends=True)
    new = line.goes_on(engine, upgrade={"tasks": {"track": "initialize"}})
    new.settle()
    assert new.completed, new.exceptions
    assert line.rows("sums") == oracle()["sums"]
    assert line.rows("pairs") == oracle()["pairs"]
    parts = [[each for rows in LEFT.values() for each in rows[part]]
             for part in (slice(16), slice(16, ROWS))]  # fmt: skip
    assert line.rows("counts") == sum(map(counts, parts), Counter())


@pytest.mark.short(1)
@pytest.mark.parametrize("seed", range(6))
def test_a_line_of_jobs_of_which_any_task_may_die_at_any_time(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    line, rows = Line(tmp_path, columns=bool(seed % 2)), 0
    for engine in ("spark", "peers", "spark", "peers"):
        if engine == "spark" and line.jobs:
            rest(line.jobs[-1], chance.choice(["", *("left", "fold", "track", "both", "pairs")]))
        job = line.goes_on(engine)
        for _ in range(2):
            rows = min(ROWS - 1, rows + chance.randrange(4))
            line.there(rows)
            run(job, chance.randrange(30))
            job.crash(chance.choice(sorted(job.tasks.values(), key=lambda task: task.peer)))
            run(job, chance.randrange(60))
        if engine == "spark":
            job.settle()  # what has not carried over yet is not upgraded
    line.there(ROWS, ends=True)
    job.settle()
    assert job.completed, job.exceptions
    line.check()


@pytest.mark.parametrize("engine", ["spark", "peers"])
def test_a_job_that_had_just_come_to_its_end_on_spark_leaves_nothing_to_do(
    engine: str, tmp_path: Path
) -> None:
    line = Line(tmp_path)
    line.there(ROWS, ends=True)
    line.goes_on("spark").settle()
    new = line.goes_on(engine)
    new.settle()
    assert new.completed, new.exceptions
    line.check()
