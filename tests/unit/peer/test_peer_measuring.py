"""What a worker measures of its tasks, as whoever asks gets it."""

import threading
from types import SimpleNamespace

import msgspec
import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.bench import GROUP, JOB, Bench, chain
from tests.support.patience import WAIT_S

import onyx
from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.peer.router.answered import AnsweredRequests
from onyx.peer.router.inputs import RequestInput
from onyx.peer.work import measuring
from onyx.peer.work.measuring import LOOK_S, SILENT_SOURCE, Lags, Measuring
from onyx.plugins.protocol import Behind, Cursor, SealProgress
from onyx.processors import Processor
from onyx.replica import canonical
from onyx.reports.measures import (
    InputMeasures,
    RequestMeasures,
    WorkerMeasures,
    done_in_words,
    in_words,
    of_jobs,
    requests_in_words,
)
from onyx.requests.request import Level, Status
from onyx.settings import Settings, StateSettings
from onyx.spark.driver.request import (
    BucketState,
    Held,
    Position,
    QueryBatch,
    QueryProgress,
    TaskCounts,
)
from onyx.task.driver.measured import BOUNDED, NOTHING_YET, edges_passed
from onyx.task.measured import OpenPartition
from onyx.telemetry.catalog import SOURCE_LAG, SOURCE_OLDEST
from onyx.telemetry.interface import NULL_GROUP, GroupMetrics, TalliedTask
from onyx.telemetry.labels import RequestTransport
from onyx.telemetry.tallies import BatchTally

SEGMENTS = [{"n": n} for n in range(40)]


class Measured(Bench):
    """A bench whose tasks are counted and measured."""

    def __init__(self, spec, peers=None, settings=None):
        super().__init__(spec, {"m:fn": lambda segment: segment}, peers, settings=settings)
        self.answered = AnsweredRequests(NULL_GROUP)
        self.measuring = Measuring(GROUP, self.clock, lambda work: work(), self.answered)

    def metrics(self, job_id, job, task):
        return TalliedTask()

    def look(self):
        self.clock.advance(LOOK_S)
        runners = [SimpleNamespace(task=task) for task in self.tasks.values()]
        self.measuring.look(runners, self.replica())

    def tasks_and_edges(self):
        found = self.document()
        return found.tasks, found.edges

    def document(self, job=None) -> WorkerMeasures:
        self.look()
        return self.measuring.document(job)


def ran(spec, peers=None) -> Measured:
    bench = Measured(spec, peers)
    bench.start()
    bench.look()
    bench.settle()
    return bench


def test_rates_are_of_what_has_passed_between_looks():
    bench = ran(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    tasks = {each.task: each for each in bench.document().tasks}
    passed = len(SEGMENTS) / (tasks["read"].in_per_s or 1)
    assert LOOK_S <= passed <= 3 * LOOK_S
    assert {each.in_per_s for each in tasks.values()} == {tasks["read"].in_per_s}
    assert [each.peers for each in tasks.values()] == [1, 1, 1]
    edges = {(each.source, each.target): each for each in bench.document().edges}
    assert set(edges) == {("read", "work"), ("work", "write")}
    assert edges["read", "work"].per_s == pytest.approx(len(SEGMENTS) / (passed + LOOK_S))


def test_a_rate_falls_to_nothing_when_nothing_passes():
    bench = ran(chain(SEGMENTS, fn="m:fn"))
    for _ in range(10):
        bench.look()
    assert {each.in_per_s for each in bench.document().tasks} == {0.0}


def test_a_segment_that_nobody_takes_waits_on_its_edge_and_its_sender_is_held():
    bench = Measured(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    bench.start()
    for _ in range(30):
        bench.round(["read", "work"])
    bench.look()
    (edge,) = [each for each in bench.document().edges if each.target == "write"]
    assert edge.queue_segments == len(SEGMENTS)


def test_peers_of_a_task_are_one_line_and_jobs_are_told_apart():
    bench = ran(chain(SEGMENTS, fn="m:fn"), {"work": 3})
    assert [(each.task, each.peers) for each in bench.document(JOB).tasks] == [
        ("read", 1), ("work", 3), ("write", 1),
    ]  # fmt: skip
    assert bench.document(JobId("another")).tasks == ()


def test_an_input_says_how_requests_to_it_were_answered_in_the_last_minute():
    bench = ran(chain(SEGMENTS, fn="m:fn"))
    read = RequestInput(JOB, bench.job.entry("read"))
    bench.answered.count(read, RequestTransport.HTTP, Level.ACK, Status.PROCESSED, 0.02)
    bench.answered.count(read, RequestTransport.HTTP, Level.JOURNAL, Status.BUSY, 0.0)
    (found,) = [each for each in bench.document(JOB).tasks if each.requests is not None]
    assert (found.task, found.peers) == ("read", 1)
    assert found.requests.answers == {"ack processed": 1, "journal busy": 1}
    assert requests_in_words(found.requests) == (
        "requests of the last minute: 1 ack processed, 1 journal busy; "
        "taken within 0.025 s (half), 0.025 s (99 %)"
    )
    assert requests_in_words(RequestMeasures()) == ""
    for _ in range(40):
        bench.look()
    (found,) = [each.requests for each in bench.document().tasks if each.requests is not None]
    assert found.answers == {}


def test_inputs_alone_are_told_without_what_costs_more():
    bench = ran(chain(SEGMENTS, fn="m:fn"))
    whole, told = bench.document(), bench.measuring.inputs()
    assert [each.task for each in told.tasks] == ["read"]
    assert (told.group, told.edges, told.digest) == (whole.group, (), "")


def test_a_document_survives_its_way_as_json():
    found = ran(chain(SEGMENTS, fn="m:fn")).document()
    assert msgspec.json.decode(msgspec.json.encode(found), type=WorkerMeasures) == found


def test_a_peer_says_where_in_the_code_of_its_user_it_is_and_for_how_long():
    bench = ran(chain(SEGMENTS, fn="m:fn"), {"work": 2})
    called, end = threading.Event(), threading.Event()

    def users_code():
        called.set()
        end.wait(WAIT_S)

    thread = threading.Thread(target=users_code)
    thread.start()
    assert called.wait(WAIT_S)
    runners = [SimpleNamespace(task=task, thread=thread.ident) for task in bench.tasks.values()]
    busy = next(each.task for each in runners if each.task.name == "work")
    busy.status.step_since_s = bench.clock.monotonic_s() - 7.0
    bench.clock.advance(LOOK_S)
    bench.measuring.look(runners, bench.replica())
    found = bench.measuring.document(JOB)
    end.set()
    thread.join()
    assert [each.task for each in found.peers] == ["read", "work", "work", "write"]
    (at_work,) = [each for each in found.peers if each.step_s is not None]
    assert (at_work.peer, at_work.step_s) == (busy.peer, 7.0 + LOOK_S)
    assert "users_code" in [frame.function for frame in at_work.stack]
    assert {each.stack for each in found.peers if each.step_s is None} == {()}
    assert found.memory_bytes > 0
    assert found.digest == canonical.digest(bench.replica())
    assert bench.measuring.document(JobId("another")).peers == ()


def test_an_input_says_what_is_in_flight_and_since_when():
    bench = Measured(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    bench.start()
    for _ in range(20):
        bench.round(["read"])
    bench.clock.advance(5.0)
    (read,) = [each.input for each in bench.document().tasks if each.input is not None]
    assert read.in_flight == len(SEGMENTS)
    assert 5.0 <= read.oldest_open_s <= 5.0 + 2 * LOOK_S
    assert [(each.position, each.in_flight) for each in read.slowest] == [(0, len(SEGMENTS))]
    job = of_jobs(*bench.tasks_and_edges())[JOB]
    assert job is not None
    assert job.oldest_open_s >= 5.0


def test_a_task_that_changes_all_the_time_is_measured_later():
    class Changing:
        job_id, peer = JOB, "p"

        @property
        def parts(self):
            raise RuntimeError("dictionary changed size during iteration")

    bench = Measured(chain(SEGMENTS, fn="m:fn"))
    measuring = Measuring(GROUP, bench.clock, lambda work: work(), bench.answered)
    measuring._runners = (SimpleNamespace(task=Changing()),)
    with pytest.raises(Unavailable, match="change faster"):
        measuring.document()


def test_a_segment_takes_from_its_reading_until_its_tree_is_complete():
    bench = Measured(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    bench.start()
    bench.look()
    for _ in range(20):
        bench.round(["read"])
    bench.clock.advance(20.0)
    bench.settle()
    (read,) = [each.input for each in bench.document().tasks if each.input is not None]
    assert read.complete.count == len(SEGMENTS)
    assert 20.0 <= read.complete.mean_s <= 20.0 + 2 * LOOK_S
    assert read.complete.quantile_s(0.5) == 30.0
    assert read.oldest_open_s is None


def test_a_retry_counts_from_the_first_reading_and_once():
    calls = []

    def fails_once(segment):
        calls.append(segment["n"])
        if calls.count(segment["n"]) == 1:
            raise onyx.Retry("not now")
        return segment

    spec = chain([{"n": 1}], fn="m:fn")
    bench = Measured(spec)
    bench._functions = {"m:fn": fails_once}
    bench.start()
    bench.look()
    for _ in range(30):
        bench.settle()
        bench.clock.advance(1.0)
    (read,) = [each.input for each in bench.document().tasks if each.input is not None]
    assert len(calls) == 2
    assert read.complete.count == 1
    assert read.complete.mean_s >= 0.5
    assert read.retried == 1
    assert "1 read again within a minute" in in_words(of_jobs(*bench.tasks_and_edges())[JOB])
    for _ in range(40):
        bench.look()
    (read,) = [each.input for each in bench.document().tasks if each.input is not None]
    assert read.retried == 0


def test_an_input_says_how_far_it_is_behind_its_source():
    bench = Measured(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    bench.start()
    read = lag(bench)
    assert (read.segments_behind, read.slowest[0].segments_behind) == (40, 40)
    assert read.unknown == ""
    bench.settle()
    read = lag(bench)
    assert (read.segments_behind, read.seconds_behind) == (0, 0.0)


def test_an_answer_that_comes_when_the_task_has_gone_is_forgotten():
    bench = Measured(chain(SEGMENTS, fn="m:fn"))
    bench.start()
    later = []
    lags = Lags(bench.clock, later.append)
    lags.look([SimpleNamespace(task=each) for each in bench.tasks.values()], 0.0)
    lags.look([], 1.0)
    for ask in later:
        ask()
    lags.look([], 2.0)
    assert later
    assert lags._known == {}


def test_what_comes_into_a_source_is_known_by_how_its_end_moves(monkeypatch):
    bench = Measured(chain(SEGMENTS, fn="m:fn"))
    bench.start()
    (source,) = bench.inputs
    ends = iter([100, 150])

    def moves(cursors):
        return dict.fromkeys(cursors, Behind(next(ends)))

    monkeypatch.setattr(source, "behind", moves)
    read = lag(bench)
    assert read.arriving_per_s == pytest.approx(50 / 6.0)
    assert read.segments_behind == 150


@pytest.mark.parametrize(
    ("opened", "says", "known"),
    [
        ([OpenPartition("a", 10, Cursor(10))], Behind(30), (10, 30)),
        ([OpenPartition("a", 10, Cursor(10))], Behind(bytes=600, bytes_done=200), (10, 30)),
        ([OpenPartition("a", 10, Cursor(0), 40, ended=True)], Behind(bytes=600), (10, 40)),
        ([OpenPartition("a", 0, Cursor(0))], Behind(bytes=600, bytes_done=0), (None, None)),
        ([OpenPartition("a", 10, Cursor(10))], Behind(), (None, None)),
        ([], Behind(), (10, 0)),
    ],
)
def test_of_a_source_with_an_end_it_is_known_how_much_is_left(opened, says, known):
    source = SimpleNamespace(
        behind=lambda cursors: dict.fromkeys(cursors, says),
        opened=lambda: opened,
        done=10,
        has_end=True,
        tasks=None,
    )
    part = SimpleNamespace(name="read", source=source)
    task = SimpleNamespace(job_id=JOB, peer="p", parts=[part])
    lags = Lags(ManualClock(), lambda work: work())
    lags.look([SimpleNamespace(task=task)], 0.0)
    found = InputMeasures(len(opened))
    read = measuring._with_end(found, source, lags.of((JOB, "read", "p")))
    assert (read.done, read.left) == known
    source.has_end = False
    assert measuring._with_end(found, source, lags.of((JOB, "read", "p"))).left is None


def test_a_source_that_does_not_answer_is_named_and_asked_again(monkeypatch):
    bench = Measured(chain(SEGMENTS, fn="m:fn"))
    bench.start()
    (source,) = bench.inputs

    def away(cursors):
        raise Unavailable("no broker at https://u:pw@host answers")

    with monkeypatch.context() as patched:
        patched.setattr(source, "behind", away)
        read = lag(bench)
        assert read.segments_behind is None
        assert read.unknown == "no broker at https://***@host answers"
    with monkeypatch.context() as patched:
        patched.setattr(source, "behind", lambda cursors: 1 / 0)
        assert "ZeroDivisionError" in lag(bench).unknown
    assert lag(bench).segments_behind == 40


def test_a_source_is_asked_one_question_at_a_time():
    bench = Measured(chain(SEGMENTS, fn="m:fn"))
    asked = []
    bench.measuring = Measuring(GROUP, bench.clock, asked.append, bench.answered)
    bench.start()
    for _ in range(20):
        bench.look()
    assert len(asked) == 1
    asked.pop()()
    for _ in range(2):
        bench.look()
    assert len(asked) == 1


def test_a_task_with_state_says_how_large_its_log_is():
    spec = chain(SEGMENTS, fn="m:fn")
    spec["catalog"][1] |= {
        "state": {"seen": "value[int]"},
        "fn": "m:count",
        "groupByKey": "n",
        "fluxPolicy": "continue",
        "deduplicate": False,
    }
    bench = Measured(spec)
    bench._functions = {"m:count": count}
    bench.start()
    bench.settle()
    (work,) = [each for each in bench.document().tasks if each.state is not None]
    assert work.task == "work"
    assert work.state.bytes > 0


class OnSpark(Measured):
    """A job on Spark; a plugin that the worker makes for its inputs says `ends`, if anything."""

    def __init__(self, spec):
        super().__init__(spec)
        self.ends = {}

    def build_input(self, plugin, context):
        assert (plugin, context.task) == ("kafka", "read")
        return SimpleNamespace(behind=self.behind, close=lambda: None)

    def behind(self, cursors):
        return {
            name: Behind(self.ends[name] - at.position)
            for name, at in cursors.items()
            if name in self.ends
        }

    def staged(self, number, read, state=()):
        """The query says what it has staged: so many segments in all, half of it a partition."""
        query = self.queries[-1]
        query.progress = QueryProgress("running", begun=number)
        self.settle()
        self.clock.advance(20.0)
        counts = {"read": TaskCounts(read, read), "work": TaskCounts(read, read)}
        at = tuple(Position("read", name, read // 2, read // 2) for name in "ab")
        query.batch = QueryBatch(number, {}, counts, at, Held(1, state))
        return self

    def of_tasks(self):
        return {each.task: each for each in self.document().tasks}


def on_spark(plugin="kafka", **options) -> OnSpark:
    spec = chain([], fn="m:fn") | {"engine": "spark"}
    spec["catalog"][0] |= {"plugin": plugin, "options": options or {"topic": "t"}}
    bench = OnSpark(spec)
    bench.settle()
    bench.look()
    return bench


def test_of_a_query_each_task_of_the_job_is_measured_by_what_is_committed():
    bench = on_spark()
    bench.staged(1, 100, (BucketState("work", 0, files=(("0-1", 40), ("0-2", 2))),)).settle()
    bench.ends = {"a": 60, "b": 55}
    bench.look()
    tasks = bench.of_tasks()
    assert list(tasks) == ["read", "work", "write"]
    assert {each.peers for each in tasks.values()} == {0}
    read = tasks["read"]
    assert 100 / 60 <= read.in_per_s <= 100 / 20
    assert (read.input.partitions, read.input.segments_behind, read.input.in_flight) == (2, 15, 0)
    assert [each.segments_behind for each in read.input.slowest] == [10, 5]
    assert read.input.complete.count == 100
    assert 20.0 <= read.input.complete.mean_s <= 25.0
    assert read.input.oldest_open_s is None
    assert tasks["work"].state.bytes == 42
    assert Exported(bench).series["onyx_state_bytes"] == {("bench", JOB, "work"): 42}
    job = of_jobs(*bench.tasks_and_edges())[JOB]
    assert 100 / 60 <= job.per_s <= read.in_per_s
    assert (job.segments_behind, job.unknown) == (15, "")


def test_of_a_query_over_bounded_inputs_the_tasks_of_spark_are_counted():
    bench = on_spark("files", path="in.jsonl")
    bench.queries[-1].progress = QueryProgress("running", spark=SealProgress(40, 10))
    bench.settle()
    bench.look()
    read = bench.of_tasks()["read"]
    assert (read.input.done, read.input.left) == (10, 30)
    assert done_in_words(of_jobs(*bench.tasks_and_edges())[JOB]) == "25 % done"


def test_edges_and_watermarks_of_a_query_are_those_of_its_tasks():
    bench = on_spark()
    bench.staged(1, 100, (
        BucketState("work", 0, 9_000, 7_000, due_ms=50), BucketState("work", 1, 9_000, 8_000),
        BucketState("work", 2, 1_000, 1_000, idle=True),
    )).settle()  # fmt: skip
    bench.look()
    edges = {(each.source, each.target): each.per_s for each in bench.document().edges}
    tasks = bench.of_tasks()
    assert edges["read", "work"] == pytest.approx(tasks["work"].in_per_s, rel=0.5) != 0.0
    assert (tasks["work"].watermark_ms, tasks["work"].state.next_timer_ms) == (7_000, 50)
    assert tasks["read"].watermark_ms is None
    bench.staged(2, 100, (BucketState("work", 0, 9_000, 7_000), BucketState("work", 1))).settle()
    assert bench.of_tasks()["work"].watermark_ms is None, "one of them has seen no event time"


@pytest.mark.parametrize(
    ("workflow", "conditions", "passed"),
    [
        ([("a", "c"), ("b", "c")], (), {"a": {"c": 10}, "b": {"c": 20}}),
        ([("a", "c"), ("b", "c"), ("a", "d")], ("a",), {"a": {"d": 4}, "b": {"c": 20}}),
        ([("a", "c"), ("b", "c")], ("all",), {}),
        ([("a", "unknown")], (), {"a": {"unknown": 10}}),
    ],
)
def test_what_passes_an_edge_of_a_query_follows_from_the_counts_of_its_tasks(
    workflow, conditions, passed
):
    counted = {"a": (11, 10), "b": (20, 20), "c": (30, 0), "d": (4, 0)}
    tallies = {}
    for task, (read, written) in counted.items():
        tallies[task] = BatchTally()
        tallies[task].batch(read, written, 0.0, 0.0, 0.0)
    job = SimpleNamespace(
        workflow=workflow, flow_conditions=[SimpleNamespace(from_tasks=conditions)]
    )
    assert edges_passed(job, tallies) == passed


def test_a_micro_batch_is_open_from_its_beginning_until_it_is_published():
    bench = on_spark()
    bench.staged(1, 100)
    read = bench.of_tasks()["read"].input
    assert 20.0 <= read.oldest_open_s <= 25.0
    assert (read.complete.count, read.unknown) == (0, NOTHING_YET)
    bench.settle()
    bench.staged(2, 150)
    bench.queries[-1].batch, bench.queries[-1].answer = None, Unavailable("Spark is away")
    for _ in range(30):
        bench.settle()
        bench.clock.advance(1.0)
    bench.staged(2, 50)
    read = bench.of_tasks()["read"].input
    assert read.oldest_open_s >= 60.0
    bench.settle()
    read = bench.of_tasks()["read"].input
    assert (read.oldest_open_s, read.complete.count) == (None, 50)
    assert read.complete.mean_s >= 60.0


@pytest.mark.parametrize("ends", [{}, {"a": 60}])
def test_how_far_a_query_is_behind_is_not_known_of_a_source_that_does_not_say_it(ends):
    bench = on_spark()
    bench.ends = ends
    bench.staged(1, 100).settle()
    for _ in range(3):
        bench.look()
    read = bench.of_tasks()["read"].input
    assert (read.segments_behind, read.unknown) == (None, SILENT_SOURCE)


def test_of_a_query_over_bounded_inputs_nothing_is_known_until_it_ends_and_that_is_said():
    bench = on_spark("files", path="in.jsonl")
    tasks = bench.of_tasks()
    assert {each.counted for each in tasks.values()} == {False}
    assert tasks["read"].input.segments_behind is None
    job = of_jobs(*bench.tasks_and_edges())[JOB]
    assert job.per_s is None
    assert in_words(job) == f"how far behind is not known: {BOUNDED}"


def count(segment, state):
    state.seen = (state.seen or 0) + 1
    return segment


def wakes(segment, state):
    if segment["n"] < 7:
        state.set_timer("t", state.now_ms + 3_600_000, clock="processing-time")
    return count(segment, state)


class Numbers(Processor):
    """Keeps each number and sends it on."""

    def init(self):
        self.seen = set()

    def process(self, ordinal, inbox):
        for each in inbox.drain():
            self.seen.add(each["n"])
            self.outbox.offer(each)

    def save_to_snapshot(self):
        return all(self.outbox.offer_to_snapshot(n, n) for n in self.seen)

    def restore_from_snapshot(self, inbox):
        self.seen |= {n for n, _ in inbox.drain()}


BY_NUMBER = {"groupByKey": "n", "fluxPolicy": "continue", "deduplicate": False}
WINDOW = {"task": "work", "aggregation": "count"}
LATE = {"refinement": "accumulating", "emit": "rows"}
AT_END = [
    {"windowId": "w", "id": "end", "type": "segment", "threshold": [1_000, "elements"], **LATE}
]
BY_CLOCK = [{"windowId": "w", "id": "clock", "type": "timer", "period": [1, "hour"], **LATE}]
KEPT = {
    "a value": ({"fn": "m:count", "state": {"seen": "value[int]"}}, {}, None),
    "timers": (
        {"fn": "m:wakes", "state": {"seen": "value[int]"}, "onTimer": "m:same"},
        {},
        7,
    ),
    "a processor": ({"fn": None, "deduplicate": None, "processor": "m:numbers"}, {}, None),
    "a window": (
        {}, {"windows": [{"id": "w", "type": "global", **WINDOW}], "triggers": AT_END}, None,
    ),
    "a window with a timer": (
        {}, {"windows": [{"id": "w", "type": "global", **WINDOW}], "triggers": BY_CLOCK}, 35,
    ),
    "extents": (
        {},
        {
            "windows": [
                {"id": "w", "type": "fixed", "windowKey": "n", "range": [100, "elements"], **WINDOW}
            ],
            "triggers": AT_END,
        },
        None,
    ),
    "sessions": (
        {},
        {
            "windows": [
                {"id": "w", "type": "session", "windowKey": "n",
                 "timeoutGap": [2, "elements"], **WINDOW}
            ],
            "triggers": AT_END,
        },
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kept", KEPT)
def test_a_task_says_what_its_state_has(kept, columns):
    work, more, timers = KEPT[kept]
    spec = chain(SEGMENTS, read={"batchFormat": "arrow"} if columns else {}, **more)
    spec["catalog"][1] |= BY_NUMBER | work
    spec["catalog"][1] = {key: each for key, each in spec["catalog"][1].items() if each is not None}
    bench = Measured(spec, {"work": 2})
    bench._functions |= {
        "m:count": count, "m:wakes": wakes, "m:same": lambda segment, state=None: segment,
        "m:numbers": Numbers,
    }  # fmt: skip
    bench.start()
    bench.look()
    for _ in range(150):
        bench.round(["read", "work"])
        bench.clock.advance(0.01)
        (state,) = [
            each.state for each in bench.measuring.document().tasks if each.state is not None
        ]
        if state.groups == len(SEGMENTS):
            break
    assert (state.groups, state.timers, state.sides) == (40, timers, {})
    assert (state.next_timer_ms is not None) == bool(state.timers)


def joining(columns):
    """A join that has taken 40 segments of one side and 30 of the other."""
    form = {"batchFormat": "arrow"} if columns else {}
    inputs = [
        {"name": name, "type": "input", "plugin": "sequence", "watermarkKey": "n", **form,
         "options": {"segments": SEGMENTS[:count]}}
        for name, count in (("left", 40), ("right", 30))
    ]  # fmt: skip
    sides = {
        each: {"task": each, "key": "n", "at": "n", "prefix": each} for each in ("left", "right")
    }
    join = {"name": "meet", "type": "join", "how": "inner", "deduplicate": False,
            "within": {"before": 99, "after": 99}}  # fmt: skip
    spec = {
        "workflow": [["left", "meet"], ["right", "meet"], ["meet", "write"]],
        "catalog": [
            *inputs,
            join | sides,
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
    }
    bench = Measured(spec)
    bench.start()
    for _ in range(20):
        bench.round(["left", "right", "meet"])
    bench.look()
    return bench


@pytest.mark.parametrize("columns", [False, True])
def test_a_join_of_streams_says_how_many_rows_wait_on_each_side(columns):
    bench = joining(columns)
    (state,) = [each.state for each in bench.document().tasks if each.state is not None]
    assert state.sides == {"left": 40, "right": 30}
    assert state.groups is None


def lag(bench):
    """What the input says after a question that is newer."""
    for _ in range(3):
        bench.look()
    (read,) = [each.input for each in bench.document().tasks if each.input is not None]
    return read


class Exported(GroupMetrics):
    """The series that were set last, by the name of the metric."""

    def __init__(self, bench):
        self.found = {}
        bench.measuring.export(self)

    def replace(self, metric, series):
        self.found[metric.name] = series

    @property
    def series(self):
        return {name: series for name, series in self.found.items() if series}


def test_series_of_lag_are_those_of_the_document_and_end_with_the_incarnation():
    bench = Measured(chain(SEGMENTS, fn="m:fn", read={"batchSize": 10}))
    bench.start()
    for _ in range(20):
        bench.round(["read"])
    read = lag(bench)
    exported = Exported(bench)
    assert exported.series == {
        SOURCE_LAG.name: {("bench", JOB, "read"): 40},
        SOURCE_OLDEST.name: {("bench", JOB, "read"): pytest.approx(read.oldest_open_s)},
    }
    bench.measuring.close(exported)
    assert exported.series == {}


def test_series_of_a_state_say_what_is_in_it_and_what_is_only_on_disk(tmp_path):
    spec = chain(SEGMENTS)
    spec["catalog"][1] |= BY_NUMBER | KEPT["timers"][0]
    state = StateSettings(memory_extents_max=8, scratch_dir=str(tmp_path))
    bench = Measured(spec, settings=Settings(state=state))
    bench._functions |= {"m:wakes": wakes, "m:same": lambda segment, state=None: segment}
    bench.start()
    found = {}
    while found.get("onyx_state_groups") != {("bench", JOB, "work"): 40}:
        bench.round(["read", "work"])
        bench.look()
        found = Exported(bench).series
    assert found["onyx_state_timers"] == {("bench", JOB, "work"): 7}
    assert found["onyx_state_bytes"]["bench", JOB, "work"] > 0
    on_disk = found["onyx_state_spilled_extents"]["bench", JOB, "work"]
    assert len(SEGMENTS) - 8 <= on_disk <= len(SEGMENTS) + 3 * 7


def test_series_of_a_join_are_apart_by_side():
    found = Exported(joining(columns=False)).series
    left, right = (("bench", JOB, "meet", side) for side in ("left", "right"))
    assert found["onyx_join_side_rows"] == {left: 40, right: 30}
    sizes = found["onyx_join_side_bytes"]
    assert sizes[left] > sizes[right] > 30
    assert "onyx_state_spilled_extents" not in found, "nothing may be on disk"


@pytest.mark.parametrize("peers", [1, 2])
@pytest.mark.parametrize("partitioned", [False, True])
def test_series_of_a_table_count_what_a_process_has_of_it_once(tmp_path, partitioned, peers):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"id": {n}}}\n' for n in range(5)))
    spec = chain(SEGMENTS)
    spec["catalog"][1] |= {"join": {"table": "rows", "key": "n"}, "groupByKey": "n"}
    del spec["catalog"][1]["fn"]
    spec["catalog"].append(
        {"name": "rows", "type": "table", "plugin": "files", "key": "id",
         "options": {"path": str(rows)}, "refresh": [1, "minute"], "partitioned": partitioned}
    )  # fmt: skip
    bench, labels = Measured(spec, {"work": peers}), ("bench", JOB, "rows")
    assert "onyx_table_rows" not in Exported(bench).series
    bench.start()
    bench.look()
    begun_s = bench.clock.monotonic_s()
    first = Exported(bench).series
    assert first["onyx_table_rows"] == {labels: 5}
    assert first["onyx_table_bytes"][labels] >= 5 * 8

    bench.clock.advance(61)
    rows.write_text("no rows at all")
    bench.settle()
    age_s = Exported(bench).series["onyx_table_age_seconds"][labels]
    assert age_s >= 61, "the one of before stays, and gets older"
    assert age_s == pytest.approx(
        first["onyx_table_age_seconds"][labels] + bench.clock.monotonic_s() - begun_s
    )
    rows.write_text('{"id": 1}\n')
    bench.clock.advance(61)
    bench.settle()
    bench.look()
    found = Exported(bench).series
    assert found["onyx_table_rows"] == {labels: 1}
    assert found["onyx_table_age_seconds"][labels] < age_s
