"""The table of phases, walked by real tasks: what comes after what, what waits, what stops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import msgspec
import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.errors import Unavailable
from onyx.log import documents
from onyx.program.phases import Phase
from onyx.task.machine import WAITING_LOGGED_AFTER_S
from onyx.task.source.frontier import Frontier
from onyx.task.table import LOOP_STARTS, TABLES, StepOutcome, TaskKind

SEGMENTS = [{"n": n} for n in range(4)]
SAME = {"m:same": lambda segment: segment}


TASKS = {TaskKind.INPUT: "read", TaskKind.FUNCTION: "work", TaskKind.OUTPUT: "write"}
FOR_HOOKS = {Phase.BEFORE_BATCH, Phase.AFTER_READ_BATCH, Phase.AFTER_APPLY_FN}
FOR_WINDOWS = {Phase.ASSIGN_WINDOWS}


def a_job() -> Bench:
    return Bench(chain(SEGMENTS), SAME)


def an_observed_job() -> Bench:
    named = ("before_batch", "after_read_batch", "after_apply_fn")
    hooks = dict.fromkeys(named, lambda event, lifecycle: None)
    lifecycles = [{"task": "all", "calls": "m:calls"}]
    return Bench(chain(SEGMENTS, lifecycles=lifecycles), SAME | {"m:calls": lambda: hooks})


def rows_of(kind: TaskKind, but: set[Phase]) -> list[Phase]:
    left_out = but | {Phase.SEAL}
    return [row.phase for row in TABLES[kind] if row.phase not in left_out]


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize(
    ("job", "nothing_to_do"),
    [(an_observed_job, FOR_WINDOWS), (a_job, FOR_WINDOWS | FOR_HOOKS)],
    ids=["with hooks", "without"],
)
def test_a_task_goes_through_the_rows_in_which_it_has_something_to_do_in_order(
    kind: TaskKind, job: Callable[[], Bench], nothing_to_do: set[Phase]
) -> None:
    bench = job()
    bench.start()
    bench.settle()
    rows = rows_of(kind, nothing_to_do | {Phase.LOOK_UP})
    trace = bench.trace[TASKS[kind]]
    assert trace[: len(rows)] == rows
    begins = next(phase for phase in LOOP_STARTS if phase in rows)
    loop = rows[rows.index(begins) :]
    assert trace[len(rows) : len(rows) + len(loop)] == loop


def test_only_outputs_seal_and_only_when_all_input_is_exhausted() -> None:
    bench = a_job()
    bench.start()
    bench.settle()
    assert [task for task, phases in bench.trace.items() if Phase.SEAL in phases] == ["write"]
    order = [command.NAME for command in bench.proposed]
    assert order.index("exhaust-input") < order.index("seal-output")
    assert bench.completed


def test_no_input_reads_before_every_peer_is_ready() -> None:
    bench = Bench(chain(SEGMENTS), SAME, peers={"work": 3})
    last = bench.task("work", 2)
    for _ in range(100):
        for task in bench.tasks.values():
            if task is not last:
                bench.step(task)
    assert bench.task("read").phase is Phase.AWAIT_READY
    bench.settle()
    assert bench.completed


def test_a_task_waits_for_slow_background_work_without_blocking() -> None:
    bench = a_job()
    bench.slow = []
    task = bench.task("read")
    assert [bench.step(task) for _ in range(3)] == [StepOutcome.WAITING] * 3
    assert len(bench.slow) == 1, "asked once, not at every step"
    bench.finish_slow()
    assert bench.step(task) is StepOutcome.ADVANCED


def test_nothing_is_done_while_the_incarnation_may_not_act() -> None:
    bench = a_job()
    bench.start()
    bench.allowed = False
    bench.settle()
    assert bench.written("write") == []
    bench.allowed = True
    bench.settle()
    assert bench.completed


def test_what_is_unavailable_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = a_job()
    answers = [Unavailable("no ZooKeeper"), Unavailable("no ZooKeeper")]
    get_chunk = bench.log.get_chunk

    def sometimes(digest: str) -> bytes:
        if answers:
            raise answers.pop()
        return get_chunk(digest)

    monkeypatch.setattr(bench.log, "get_chunk", sometimes)
    bench.settle()
    assert bench.completed
    assert bench.exceptions == []


@pytest.mark.parametrize("data", [b"", b'{"position": 5', b'{"foreign": true}', b"[7]"])
def test_a_frontier_that_is_damaged_kills_the_job_with_what_to_do(data: bytes) -> None:
    bench = a_job()
    bench.log.put_document(documents.frontier(bench.id, 0), data, None)
    bench.settle()
    assert not bench.completed
    detail = str(bench.exceptions[0]["detail"])
    assert f"job {bench.id}: document frontier/{bench.id}/0 in the log" in detail
    assert "restore the data of the log" in detail


def test_what_a_task_waits_for_long_is_told_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = a_job()

    def never(digest: str) -> bytes:
        raise Unavailable("no space on the disk")

    monkeypatch.setattr(bench.log, "get_chunk", never)
    bench.settle()
    assert caplog.messages == []
    for _ in range(3):
        bench.clock.advance(WAITING_LOGGED_AFTER_S)
        bench.settle()
    names = sorted(task.name for task in bench.tasks.values())
    assert sorted(caplog.messages) == [
        f"task {name} waits in load-job: no space on the disk" for name in names
    ]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (TASKS[kind], phase)
        for kind in (TaskKind.INPUT, TaskKind.OUTPUT)
        for phase in rows_of(kind, FOR_WINDOWS)
    ],
    ids=str,
)
def test_a_task_that_is_stopped_in_any_phase_closes_its_plugin(name: str, phase: Phase) -> None:
    bench = an_observed_job()
    task = bench.task(name)
    for _ in range(1_000):
        if task.phase is phase:
            break
        bench.round()
    assert task.phase is phase
    assert bench.stop(task) is StepOutcome.DONE
    built = bench.inputs if name == "read" else bench.outputs["write"]
    if list(Phase).index(phase) > list(Phase).index(Phase.BUILD):
        assert len(built) == 1
    for plugin in built:
        assert plugin.closed if name == "read" else plugin.calls[-1] == "close"  # type: ignore[union-attr]


def test_a_plugin_is_not_built_before_everything_else_of_the_task_is_known_to_be_right() -> None:
    job = chain(SEGMENTS, work={"groupByFn": "m:missing", "minPeers": 1, "fluxPolicy": "kill"})
    bench = Bench(job, SAME)
    bench.settle(["read"])
    assert bench.exceptions[0]["type"] == "NameNotRegistered"
    assert bench.inputs == [], "an input that nobody would close"


def test_what_a_task_stumbles_over_when_it_has_been_taken_away_kills_nothing() -> None:
    def boom(_: object) -> None:
        raise ValueError("boom")

    bench = Bench(chain(SEGMENTS, fn="m:boom"), {"m:boom": boom})
    bench.start()
    bench.take_away(bench.task("work"))
    bench.settle()
    assert bench.exceptions == []
    assert bench.stop(bench.task("work")) is StepOutcome.DONE


def test_a_rewiring_that_the_task_has_already_taken_changes_nothing() -> None:
    """The newest replica may be seen before the message about it."""
    bench = a_job()
    bench.start()
    bench.rewire()
    messages = {peer: list(task.mail) for peer, task in bench.tasks.items()}
    bench.settle()
    signalled = len(bench.proposals("signal-ready"))
    for peer, late in messages.items():
        for message in late:
            bench.tasks[peer].post(message)
    bench.settle()
    assert len(bench.proposals("signal-ready")) == signalled
    assert bench.completed


def test_consecutive_phases_differ() -> None:
    bench = a_job()
    bench.settle()
    for phases in bench.trace.values():
        assert [phase for phase, _ in groupby(phases)] == phases


@pytest.mark.parametrize(
    ("reason", "saved"),
    [("peer-left", True), ("peer-reallocated", True), ("job-killed", False)],
)
def test_an_input_that_stops_while_its_job_goes_on_says_how_far_it_is(
    reason: str, saved: bool
) -> None:
    segments = [{"n": n} for n in range(500)]
    bench = Bench(chain(segments, read={"maxPending": 30}), SAME)
    bench.start()
    task = bench.task("read")
    source = task.runtime.source
    assert source is not None
    (partition,) = source.partitions.values()
    while not partition.pending.frontier:
        assert bench.round()
    frontier = partition.pending.frontier
    assert bench.stop(task, reason) is StepOutcome.DONE
    document = bench.log.get_document(f"frontier/{task.job_id}/{partition.number}")
    found = msgspec.json.decode(document.data, type=Frontier).position if document else 0
    assert (found == frontier) is saved
