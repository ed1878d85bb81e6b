"""Processors in queries and micro-batches, without a JVM: the same rows as on peers, each once,
whoever dies, and whatever a processor leaves in its inbox."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.bench import Bench
from tests.support.spark import processors
from tests.support.spark.bench import EngineBench
from tests.support.spark.inputs import fed as fed_input
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.ledger.retry_delay import DEFAULT
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.operators.processor import processor_states
from onyx.processors import Inbox
from onyx.spark_query.folding import inbox, share_state
from onyx.spark_query.tree import Retrying
from onyx.submission.upgrades import plan_upgrade

INPUTS, CLASSES = "tests.support.spark.inputs", "tests.support.spark.processors"
FUNCTIONS = "tests.support.spark.functions"
Rows = list[dict[str, Any]]
EVENTS: Rows = [{"key": "xyz"[n * n % 3], "at": 3 * n, "v": n} for n in range(40)]
NAMES: Rows = [{"key": key, "name": key.upper(), "at": 1} for key in "xyz" * 9]


def processor(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "work", "type": "function", "processor": f"{CLASSES}:{name}", **more}


BY_KEY = {"groupByKey": "key", "fluxPolicy": "continue"}
TOTALS = processor("Totals", **BY_KEY, deadLetter="bad")
ALL = processor("Totals", deadLetter="bad")
COLUMNAR = processor("Columnar", batchFormat="arrow", **BY_KEY)
FAILING = processor("Failing", deadLetter="bad", **BY_KEY)
NAMED = processor("Named")
NAMED_COLUMNS = processor("NamedColumns", batchFormat="arrow")
PAIRS = processor("Pairs")
HEARD = processor("Heard")
SEGMENTS = {"names": NAMES, "read": EVENTS}


def spec(work: dict[str, Any], inputs: list[dict[str, Any]], write: str) -> dict[str, Any]:
    bad = "deadLetter" in work
    outputs = ["out", "bad"] if bad else ["out"]
    return {
        "guarantee": "exactly-once",
        "workflow": [*([each["name"], "work"] for each in inputs),
                     *(["work", each] for each in outputs)],
        "catalog": [
            *({"type": "input", **each} for each in inputs),
            work,
            *({"name": name, "type": "output", "plugin": write,
               **({"options": {"path": name}} if write == "files" else {})} for name in outputs),
        ],
    }  # fmt: skip


def sequences(names: tuple[str, ...], timed: bool = True) -> list[dict[str, Any]]:
    time = {"watermarkKey": "at"} if timed else {}
    return [
        {"name": name, "plugin": "sequence", "options": {"segments": SEGMENTS[name]}, **time}
        for name in names
    ]


def job(work: dict[str, Any], inputs: list[dict[str, Any]]) -> Job:
    return parsed(spec(work, inputs, "files"))


def parsed(spec: dict[str, Any]) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "worked"}}
    return parse_manifest(json.dumps({**head, "spec": {"engine": "spark", **spec}}).encode())


def fed(folder: Path, names: tuple[str, ...]) -> list[dict[str, Any]]:
    for name in names:
        feed(folder / name, {"a": SEGMENTS[name]}, 100, ends=True)
    options = [{"feed": str(folder / name)} for name in names]
    plugin = {"plugin": f"{INPUTS}:fed", "watermarkKey": "at"}
    return [{"name": n, "options": its, **plugin} for n, its in zip(names, options, strict=True)]


def texts(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(each, sort_keys=True) for each in rows)


def on_peers(
    work: dict[str, Any],
    names: tuple[str, ...] = ("read",),
    peers: int = 2,
    timed: bool = True,
    like: dict[str, Any] | None = None,
) -> Counter[str]:
    """`like`: a task that makes the same, without retries, which take their time."""
    functions = {f"{CLASSES}:{name}": each for name, each in vars(processors).items()}
    made = spec(like or work, sequences(names, timed), "blackhole")
    bench = Bench(made, functions, peers={"work": peers})
    bench.settle()
    assert bench.completed, bench.exceptions
    return texts(bench.written("out"))


def on_spark(
    folder: Path, work: dict[str, Any], inputs: list[dict[str, Any]], **frames: int
) -> Counter[str]:
    request = request_of(job(work, inputs), folder, (CLASSES,))
    reply = run_query(request, Frames(**frames))
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    return texts(written(folder))


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retrying.__init__, "__defaults__", (lambda delay_s: None, DEFAULT))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 7)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)


CASES = [
    pytest.param(TOTALS, ("read",), {}, id="dicts"),
    pytest.param(COLUMNAR, ("read",), {}, id="columns"),
    pytest.param(FAILING, ("read",), {"like": TOTALS}, id="retries"),
    pytest.param(NAMED, ("names", "read"), {"peers": 1}, id="left"),
    pytest.param(NAMED_COLUMNS, ("names", "read"), {"peers": 1}, id="left, columns"),
    pytest.param(PAIRS, ("read",), {"peers": 1, "timed": False}, id="two at a time"),
]


@pytest.mark.parametrize(("work", "names", "more"), CASES)
def test_a_bounded_query_gives_the_rows_of_peers(
    work: dict[str, Any], names: tuple[str, ...], more: dict[str, Any], tmp_path: Path
) -> None:
    found = on_spark(tmp_path, work, sequences(names), repeats=1)
    assert found == on_peers(work, names, **more)


@pytest.mark.parametrize("warm", [0, 1 << 20])
@pytest.mark.parametrize(("work", "names", "more"), CASES)
@pytest.mark.usefixtures("small_batches")
def test_micro_batches_give_the_rows_of_peers_whoever_dies(
    work: dict[str, Any],
    names: tuple[str, ...],
    more: dict[str, Any],
    warm: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", warm)
    worker = Worker(job(work, fed(tmp_path, names)), tmp_path, (INPUTS, CLASSES))
    worker.run_whoever_dies(before=2, behind=4)
    assert texts(written(tmp_path)) == on_peers(work, names, **more)


def test_one_bucket_has_a_processor_without_groups_and_hears_the_end_of_each_edge(
    tmp_path: Path,
) -> None:
    found = on_spark(tmp_path, HEARD, sequences(("names", "read")), buckets=3)
    said = [json.loads(each) for each in found.elements()]
    assert Counter(each["from"] for each in said if "from" in each) == {"names": 27, "read": 40}
    assert sorted(each["ended"] for each in said if "ended" in each) == ["names", "read"]
    assert [each for each in said if "complete" in each] == [{"complete": 117, "where": [0, 1]}]


def test_a_processor_completes_though_a_stage_before_it_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stages_of_nothing.py").write_text("def none(frame):\n    return frame[:0]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    stage = {"name": "stage", "type": "function", "sparkStage": "stages_of_nothing:none",
             "options": {"path": str(tmp_path / "bundles")}}  # fmt: skip
    made = spec(HEARD, sequences(("read",)), "files")
    made["workflow"] = [["read", "stage"], ["stage", "work"], ["work", "out"]]
    made["catalog"].insert(1, stage)
    request = request_of(parsed(made), tmp_path, (CLASSES, "stages_of_nothing"))
    reply = run_query(request, Frames())
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert written(tmp_path) == [{"ended": "stage"}, {"complete": 0, "where": [0, 1]}]


def test_an_item_that_makes_much_is_finished_before_the_next(tmp_path: Path) -> None:
    found = on_spark(tmp_path, processor("Many", **BY_KEY), sequences(("read",)))
    assert sum("many" in each for each in found) == 70_000
    assert set(found.values()) == {1}
    counts = [json.loads(each) for each in found if "total" in each]
    assert sum(each["total"] for each in counts) == len(EVENTS) - 1


@pytest.mark.usefixtures("small_batches")
def test_event_time_waits_behind_what_is_left_over_micro_batches(tmp_path: Path) -> None:
    count = {"id": "w", "task": "fold", "type": "fixed", "windowKey": "at", "range": [9, "ms"],
             "aggregation": "count"}  # fmt: skip
    made = spec(NAMED, fed(tmp_path, ("names", "read")), "files")
    made["workflow"] = [["names", "work"], ["read", "work"], ["work", "fold"], ["fold", "out"]]
    made["catalog"].append({"name": "fold", "type": "reduce"})
    made["windows"] = [count]
    made["triggers"] = [{"windowId": "w", "type": "watermark", "refinement": "discarding",
                          "emit": f"{FUNCTIONS}:extent"}]  # fmt: skip
    worker = Worker(parsed(made), tmp_path, (INPUTS, CLASSES, FUNCTIONS))
    reply = worker.run()
    assert reply.failure is None, reply.failure
    assert len(worker.batches) > 5
    left = [sum(size for _, size in each.files) for each in worker.batches[2].held.states
            if each.task == "work"]  # fmt: skip
    assert left
    assert reply.tasks["fold"].late == 0
    assert sum(each["value"] for each in written(tmp_path)) == len(EVENTS)


def test_one_that_goes_back_does_no_more_again_than_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    process, save = processors.Totals.process, processors.Totals.save_to_snapshot

    def counted(self: processors.Totals, ordinal: int, inbox: Inbox[Any]) -> None:
        given.append(len(inbox))
        process(self, ordinal, inbox)

    def saved(self: processors.Totals) -> bool:
        given.append(-1)
        return save(self)

    monkeypatch.setattr(processors.Totals, "process", counted)
    monkeypatch.setattr(processors.Totals, "save_to_snapshot", saved)
    monkeypatch.setattr("onyx.operators.processor.turns.KEPT_FIRST", 4)
    found = on_spark(tmp_path, {**TOTALS, "batchSize": 2}, sequences(("read",)))
    runs = "".join("s" if each < 0 else "x" for each in given).split("s")
    assert len(runs) > 5
    assert max(map(len, runs)) < 8
    assert found == on_peers(TOTALS)


@pytest.mark.parametrize("warm", [0, 1 << 20])
@pytest.mark.usefixtures("small_batches")
def test_each_processor_that_has_begun_is_closed(
    warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: Counter[str] = Counter()
    begin = processors.Named.init

    def init(self: processors.Named) -> None:
        called["init"] += 1
        begin(self)

    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", warm)
    monkeypatch.setattr(processors.Named, "init", init)
    monkeypatch.setattr(processors.Named, "close", lambda _: called.update(["close"]))
    worker = Worker(job(NAMED, fed(tmp_path, ("names", "read"))), tmp_path, (INPUTS, CLASSES))
    assert worker.run().failure is None
    assert called["init"] == called["close"] == (1 if warm else len(worker.batches))


@pytest.mark.usefixtures("small_batches")
def test_one_that_waits_for_the_time_gets_it_though_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor_states, "TRIED_EVERY_MS", 0)
    read = fed(tmp_path, ("read",))
    feed(tmp_path / "read", {"a": EVENTS}, 3)
    worker = Worker(job(processor("Patient"), read), tmp_path, (INPUTS, CLASSES))
    worker.dies = lambda batch: "behind it" if batch.number in (2, 5) else ""
    for _ in range(2):
        worker.run()
    assert [each.number for each in worker.batches] == [1, 2, 3, 4, 5]
    assert {each.positions[0].position for each in worker.batches} == {3}
    rows = written(tmp_path)
    assert sorted(each["v"] for each in rows if "v" in each) == [0, 1, 2]
    beats = sorted(each["beat"] for each in rows if "beat" in each)
    assert beats == list(range(len(beats)))


@pytest.mark.usefixtures("small_batches")
def test_a_job_that_drains_takes_what_is_left(tmp_path: Path) -> None:
    worker = Worker(job(NAMED, fed(tmp_path, ("names", "read"))), tmp_path, (INPUTS, CLASSES))
    for name, rows in SEGMENTS.items():
        feed(tmp_path / name, {"a": rows}, 9)
    worker.dies = lambda batch: "behind it" if batch.number == 2 else ""
    worker.run()
    assert not written(tmp_path)
    reply = worker.run(draining=True)
    assert reply.failure is None, reply.failure
    assert texts(written(tmp_path)) == texts(
        [{**each, "name": each["key"].upper()} for each in EVENTS[:9]]
    )


def test_one_that_waits_for_ever_is_told_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "WAITS_S", 0.0)
    request = request_of(
        job(processor("Never"), sequences(("names", "read"))), tmp_path, (CLASSES,)
    )
    failure = run_query(request, Frames()).failure
    assert failure is not None
    assert failure.by_user
    assert "work" in failure.message
    left = "processor .*:Never leaves 27 segments of names and 40 segments of read in its inbox"
    assert re.search(left, failure.message), failure.message


def test_too_much_in_an_inbox_fails_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "LEFT_BYTES_MAX", 100)
    request = request_of(job(NAMED, sequences(("names", "read"))), tmp_path, (CLASSES,))
    failure = run_query(request, Frames()).failure
    assert failure is not None
    assert failure.by_user
    assert "take what comes and keep it in the state, or run the job on peers" in failure.message


class Line:
    """One job after the other, each with the state of the one before."""

    def __init__(self, folder: Path, work: dict[str, Any], names: tuple[str, ...]) -> None:
        self.folder, self.work, self.names = folder, work, names
        self.jobs: list[EngineBench] = []
        for name in names:
            self.there(name, 0)

    def there(self, name: str, rows: int, ends: bool = False, **more: Rows) -> None:
        """So many rows of an input are there, in a partition, and in more of them."""
        feed(self.folder / name, {"m": SEGMENTS[name], **more}, rows, ends)

    def goes_on(self, engine: str) -> EngineBench:
        """The next job."""
        plugin = {"plugin": f"{INPUTS}:fed", "watermarkKey": "at"}
        feeds = [(name, {"feed": str(self.folder / name)}) for name in self.names]
        inputs = [{"name": name, "options": options, **plugin} for name, options in feeds]
        made = {"engine": engine, **spec(self.work, inputs, "files")}
        last = self.jobs[-1] if self.jobs else None
        modules = (INPUTS, CLASSES)
        functions = {f"{CLASSES}:{name}": each for name, each in vars(processors).items()}
        functions[f"{INPUTS}:fed"] = fed_input
        self.jobs.append(EngineBench(made, self.folder, modules, functions, after=last))
        self.jobs[-1].settle()
        return self.jobs[-1]


@pytest.mark.usefixtures("small_batches")
def test_what_is_left_goes_on_in_a_job_that_upgrades_whatever_numbers_partitions_have(
    tmp_path: Path,
) -> None:
    line = Line(tmp_path, NAMED, ("names", "read"))
    line.there("names", 9)
    line.there("read", 20)
    line.goes_on("spark")
    assert not written(tmp_path)
    more = [{"key": "x", "at": 200, "v": 100}]
    line.there("names", 100, ends=True)
    line.there("read", 100, ends=True, a=more)  # the first by name, so the others get new numbers
    last = line.goes_on("spark")
    assert last.completed, last.exceptions
    expected = [{**each, "name": each["key"].upper()} for each in [*EVENTS, *more]]
    assert texts(written(tmp_path)) == texts(expected)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("work", [TOTALS, COLUMNAR, ALL], ids=["dicts", "columns", "no groups"])
def test_peers_go_on_with_the_state_of_a_processor_on_spark(
    work: dict[str, Any], tmp_path: Path
) -> None:
    line = Line(tmp_path, work, ("read",))
    line.there("read", 20)
    line.goes_on("spark")
    line.there("read", 100, ends=True)
    last = line.goes_on("peers")
    assert last.completed, last.exceptions
    assert texts(written(tmp_path)) == on_peers(COLUMNAR if work is COLUMNAR else TOTALS)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("work", [TOTALS, ALL], ids=["groups", "no groups"])
def test_spark_goes_on_with_the_state_of_a_processor_on_peers_that_rest(
    work: dict[str, Any], tmp_path: Path
) -> None:
    line = Line(tmp_path, work, ("read",))
    line.there("read", 20)
    old = line.goes_on("peers")
    for _ in range(400):
        old.round()
        old.clock.advance(0.1)
    line.there("read", 100, ends=True)
    last = line.goes_on("spark")
    assert last.completed, last.exceptions
    assert texts(written(tmp_path)) == on_peers(TOTALS)


@pytest.mark.usefixtures("small_batches")
def test_peers_say_that_they_do_not_take_over_what_was_left(tmp_path: Path) -> None:
    line = Line(tmp_path, NAMED, ("names", "read"))
    line.there("read", 20)
    old = line.goes_on("spark")
    new = line.goes_on("peers")
    (said,) = {each["detail"] for each in new.exceptions[:1]}
    assert "change the engine when nothing is left" in said
    assert new.job.upgrade is not None
    found = plan_upgrade(old.log, old.replica(), new.job, new.job.upgrade)
    ((path, message),) = [(each.path, each.message) for each in found.problems]
    assert path == "spec.upgrade.tasks.work"
    assert "has left items in its inbox on Spark" in message
    anew = replace(new.job.upgrade, tasks={"work": "initialize"})
    assert not plan_upgrade(old.log, old.replica(), new.job, anew).problems


@pytest.mark.usefixtures("small_batches")
def test_a_processor_that_has_left_nothing_may_go_to_peers(tmp_path: Path) -> None:
    line = Line(tmp_path, NAMED, ("names", "read"))
    line.there("names", 100, ends=True)
    line.there("read", 20)
    old, new = line.goes_on("spark"), line.goes_on("peers")
    assert new.job.upgrade is not None
    assert not plan_upgrade(old.log, old.replica(), new.job, new.job.upgrade).problems
    assert not new.exceptions
