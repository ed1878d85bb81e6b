"""Why a task does not advance, as a table of what is seen of it."""

from types import SimpleNamespace

import pytest

from onyx.plugins.rolling import ROLL_LIMITS
from onyx.program.phases import Phase
from onyx.reports.stalls import Reason
from onyx.task.diagnosis import Facts, allowed_s, diagnose, is_alone
from onyx.task.table import TaskKind

IN, FN, OUT = TaskKind.INPUT, TaskKind.FUNCTION, TaskKind.OUTPUT
DRIVER = TaskKind.DRIVER


def facts(kind=FN, phase=Phase.READ_BATCH, **more):
    return Facts(kind, phase, maker="shop:parse", **more)


@pytest.mark.parametrize(
    ("seen", "reason", "why"),
    [
        (facts(FN, Phase.APPLY_FN, step_s=40.0), Reason.FUNCTION, "function shop:parse"),
        (facts(FN, Phase.ASSIGN_WINDOWS, step_s=40.0), Reason.WINDOWS, "windows"),
        (facts(FN, Phase.ROUTE, step_s=40.0), Reason.CONDITION, "flow condition"),
        (facts(OUT, Phase.ROUTE, step_s=40.0), Reason.PLUGIN, "plugin shop:parse is writing"),
        (facts(IN, Phase.READ_BATCH, step_s=40.0), Reason.PLUGIN, "is reading"),
        (facts(IN, Phase.BUILD, step_s=40.0), Reason.PLUGIN, "is being built"),
        (facts(FN, Phase.BEFORE_TASK, step_s=40.0), Reason.LIFECYCLE, "before_task_start"),
        (facts(OUT, Phase.SEAL, step_s=42.0, spark=True), Reason.SPARK, "attempt 1, is running"),
        (facts(OUT, Phase.SEAL, spark=True, attempts=2), Reason.SPARK, "failed 2 times"),
        (facts(OUT, Phase.SEAL, step_s=42.0), Reason.PLUGIN, "is sealing"),
        (facts(FN, thread_taken_by="slow"), Reason.THREAD, "task slow"),
        (facts(FN, permitted=False), Reason.ZOOKEEPER, "the log does not answer"),
        (facts(OUT, Phase.ROUTE, obstacle="no space left"), Reason.UNAVAILABLE, "no space left"),
        (facts(OUT, Phase.SEAL, obstacle="no space left"), Reason.UNAVAILABLE, "no space left"),
        (facts(IN, Phase.RECOVER, obstacle="no broker"), Reason.UNAVAILABLE, "no broker"),
        (facts(OUT, restarts="a new peer begins"), Reason.RESTARTING, "a new peer begins"),
        (facts(FN, Phase.START_TASK), Reason.START_TASK, "start_task says"),
        (facts(FN, Phase.LOAD_JOB), Reason.LOADING, "reads the job"),
        (facts(FN, Phase.BUILD, tables="users"), Reason.LOADING, "it looks up: users"),
        (facts(FN, Phase.BUILD, tables="a", obstacle="no disk"), Reason.UNAVAILABLE, "no disk"),
        (facts(IN, Phase.RECOVER), Reason.RECOVERING, "partitions"),
        (facts(FN, Phase.RECOVER), Reason.RECOVERING, "state"),
        (facts(IN, Phase.AWAIT_READY, not_ready=("a", "b")), Reason.PEERS, "peers of a, b"),
        (facts(FN, Phase.WRITE_BATCH, outbox_to=("write",)), Reason.DOWNSTREAM, "front of write"),
        (facts(OUT, undurable=7), Reason.NOT_DURABLE, "not made 7 segments durable"),
        (facts(IN, in_flight=7), Reason.COMPLETIONS, "nothing that was read is completed"),
        (facts(IN, in_flight=7, ahead="waits for input b"), Reason.AHEAD, "input b"),
        (facts(IN, in_flight=7, overdue=1, ahead="waits"), Reason.COMPLETIONS, "is completed"),
        (facts(IN, in_flight=7, resting=2, next_try="noon"), Reason.RETRY, "the next at noon"),
        (facts(FN, held_back=True), Reason.SUSPECTS, "tried alone"),
        (facts(FN, suspects=3, outbox_to=("a",)), Reason.SUSPECTS, "tries 3 segments"),
        (facts(DRIVER, Phase.TAKE_OVER), Reason.RECOVERING, "is committed"),
        (
            facts(DRIVER, Phase.RUN_QUERY, query="starting"),
            Reason.SPARK,
            "query on Spark is starting",
        ),
        (facts(DRIVER, Phase.RUN_QUERY, obstacle="Spark died"), Reason.UNAVAILABLE, "Spark died"),
        (facts(DRIVER, Phase.PUBLISH), Reason.PLUGIN, "publishes the result"),
        (facts(FN, in_flight=7), Reason.COMPLETIONS, "nothing"),
        (
            facts(IN, in_flight=7, overdue=5, pending_timeout_ms=60_000),
            Reason.COMPLETIONS,
            "nothing that was read is completed, 5 segments for longer than pendingTimeout (60,000",
        ),
    ],
)
def test_the_first_row_that_fits_says_why(seen, reason, why):
    found = diagnose(seen)
    assert found is not None
    assert found[0] is reason
    assert why in found[1]


@pytest.mark.parametrize("kind", TaskKind)
def test_who_has_nothing_to_do_is_idle(kind):
    assert diagnose(facts(kind)) is None
    assert diagnose(facts(kind, Phase.BEFORE_BATCH)) is None
    assert diagnose(facts(kind, Phase.APPLY_FN, step_s=0.5)) is None


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize("phase", Phase)
def test_a_step_that_does_not_come_back_has_a_reason_in_every_phase(kind, phase):
    found = diagnose(facts(kind, phase, step_s=3_600.0))
    assert found is not None
    assert "{" not in found[1]
    early = list(Phase).index(phase) < list(Phase).index(Phase.BEFORE_BATCH)
    assert is_alone(facts(kind, phase)) is (early or phase is Phase.SEAL)


@pytest.mark.parametrize(
    ("plugin", "options", "allowed"),
    [("files", {}, ROLL_LIMITS.age_s), ("files", {"rollSeconds": 3}, 3.0), ("stdout", {}, 0.0)],
)
def test_a_part_may_be_open_for_as_long_as_its_output_keeps_it(plugin, options, allowed):
    entry = SimpleNamespace(plugin=plugin, options=options)
    assert allowed_s(Reason.NOT_DURABLE, entry, None) == allowed
