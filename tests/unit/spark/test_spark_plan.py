"""The plan by which Spark runs a job, as values and as text, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from onyx.cli.command_table import run_command
from onyx.errors import ManifestError
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import (
    Exchange,
    Fragment,
    Middle,
    Plan,
    PlannedOutput,
    PlannedWindow,
    render,
)
from onyx.spark_query.chain import PARTITIONS, buckets_of

EXAMPLES = Path(__file__).parents[3] / "examples"
HEAD = """apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: shop}
spec:
  guarantee: exactly-once
"""
SHOP = """
  workflow: [[read, price], [price, totals], [totals, top], [price, bad], [top, print]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: orders.jsonl}, watermarkKey: at}
    - {name: price, type: function, fn: "shop:price", deadLetter: bad}
    - {name: totals, type: reduce, groupByKey: [shop, day], fluxPolicy: continue}
    - {name: top, type: reduce}
    - {name: print, type: output, plugin: stdout}
    - {name: bad, type: output, plugin: files, options: {path: bad}}
  windows:
    - {id: hours, task: totals, type: fixed, windowKey: at, range: [1, hour], aggregation: [sum, n],
       allowedLateness: [1, hour]}
    - {id: best, task: top, type: global, aggregation: "shop:best"}
  triggers:
    - {windowId: hours, type: watermark, postEvictor: [all], emit: "shop:row"}
    - {windowId: best, type: segment, threshold: [9, elements], refinement: accumulating,
       emit: "shop:row"}
"""

JOINED = """
  workflow: [[read, totals], [totals, both], [read, both], [both, print]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: orders.jsonl}, watermarkKey: at}
    - {name: totals, type: reduce, groupByKey: shop, fluxPolicy: continue}
    - {name: both, type: join, left: {task: totals, key: shop, at: at},
       right: {task: read, key: shop, at: at}, range: [1, hour]}
    - {name: print, type: output, plugin: stdout}
  windows:
    - {id: hours, task: totals, type: fixed, windowKey: at, range: [1, hour], aggregation: count}
  triggers:
    - {windowId: hours, type: watermark, postEvictor: [all], emit: "shop:row"}
"""


def job(spec: str) -> Job:
    return parse_manifest((HEAD + spec).encode())


def test_a_task_behind_a_shuffle_begins_a_fragment() -> None:
    below = "windows below it hear each watermark"
    hours = PlannedWindow("hours", "fixed", "sum n", False, below)
    best = PlannedWindow(
        "best", "global", "shop:best", False, "states of shop:best are not numbers"
    )
    assert compile_job(job(SHOP)) == Plan(
        "shop",
        (
            Fragment(0, ("read",), ("read", "price", "bad")),
            Fragment(1, ("totals",), ("totals",)),
            Fragment(2, ("top",), ("top", "print")),
        ),
        (
            Exchange("totals", 1, "shop, day", (hours,), "batches", ends=True),
            Exchange("top", 2, None, (best,), "segments", ends=True),
        ),
        (PlannedOutput("bad", "files", "staged"), PlannedOutput("print", "stdout", "spooled")),
    )


def test_a_task_that_is_fed_by_two_fragments_runs_in_both() -> None:
    plan = compile_job(
        job("""
  workflow: [[read, count], [read, write], [count, write]]
  catalog:
    - {name: read, type: input, plugin: generator, options: {segments: 9}}
    - {name: count, type: reduce}
    - {name: write, type: output, plugin: blackhole}
  windows: [{id: ever, task: count, type: global, aggregation: count}]
  triggers: [{windowId: ever, type: segment, threshold: [2, elements], refinement: accumulating,
              emit: "shop:row"}]
""")
    )
    assert [each.tasks for each in plan.fragments] == [("read", "write"), ("count", "write")]
    assert plan.exchanges[0].watermarks == "none"


MIDDLE = """
  workflow: [[read, hours], [read, join], [hours, join], [join, last], [read, last], [last, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: in}, watermarkKey: at}
    - {name: hours, type: reduce, groupByKey: page, fluxPolicy: continue}
    - {name: join, type: function, sparkStage: "shop:join", options: {path: bundles}}
    - {name: last, type: reduce, groupByKey: page, fluxPolicy: continue}
    - {name: write, type: output, plugin: files, options: {path: out}}
  windows:
    - {id: hours, task: hours, type: fixed, windowKey: at, range: [1, hour], aggregation: count}
    - {id: last, task: last, type: global, aggregation: count}
  triggers:
    - {windowId: hours, type: watermark, postEvictor: [all], emit: "shop:row"}
    - {windowId: last, type: watermark, refinement: accumulating, emit: "shop:row"}
"""


def test_all_stages_above_a_spark_stage_are_a_part_of_their_own() -> None:
    plan = compile_job(job(MIDDLE))
    assert plan.middles == (Middle("join", 2, "shop:join", ("hours", "read")),)
    assert [each.begins for each in plan.fragments] == [("read",), ("hours",), ("join",), ("last",)]
    assert plan.pieces == (range(2), range(2, 4))
    assert [(each.task, each.watermarks) for each in plan.exchanges] == [
        ("hours", "segments"),
        ("last", "segments"),
    ]


def test_the_plan_says_when_a_spark_stage_runs_and_over_what() -> None:
    middle = job(MIDDLE)
    printed = render(compile_job(middle), middle).splitlines()
    assert printed[0] == "job shop on Spark: one batch query of 4 fragments, in 2 parts"
    where = printed.index("Spark stage shop:join of task join, once, over all of hours, read")
    assert printed[where + 1 : where + 4] == [
        "fragment 2: one mapInArrow, a task of Spark for each share of the rows",
        "  join: rows of the Spark stage shop:join",
        "    shuffle to last in fragment 3, by page",
    ]
    assert printed[where - 1] == "    written for the Spark stage of join"


def test_no_watermark_goes_past_a_spark_stage() -> None:
    only = MIDDLE.replace(", [read, last]", "")
    assert [(each.task, each.watermarks) for each in compile_job(job(only)).exchanges] == [
        ("hours", "segments"),
        ("last", "none"),
    ]


def test_a_plan_is_readable() -> None:
    shop = job(SHOP)
    assert render(compile_job(shop), shop).splitlines() == [
        "job shop on Spark: one batch query of 3 fragments",
        "fragment 0: one mapInArrow, a task of Spark for each partition of the inputs",
        "  read: input files with watermarks by at",
        "    price: function, shop:price on dicts",
        "      bad: output, files staged, and published by the worker at the end",
        "      shuffle to totals in fragment 1, by shop, day",
        "fragment 1: one mapInArrow, a task of Spark for each share of the groups",
        "  totals: reduce, fixed window hours of sum n folded behind the shuffle (windows below it "
        "hear each watermark), watermarks of every batch",
        "    shuffle to top in fragment 2, all to one bucket",
        "fragment 2: one mapInArrow, a task of Spark for each share of the groups",
        "  top: reduce, global window best of shop:best folded behind the shuffle (states of "
        "shop:best are not numbers)",
        "    print: output, stdout spooled, and written by the worker at the end",
    ]


COUNTS = """
  workflow: [[read, count], [count, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: in}, watermarkKey: at}
    - {name: count, type: reduce, groupByKey: page, fluxPolicy: continue}
    - {name: write, type: output, plugin: files, options: {path: out}}
  windows: [{id: hours, task: count, type: fixed, windowKey: at, range: [1, hour],
             aggregation: count}]
  triggers: [{windowId: hours, type: watermark, refinement: discarding, emit: "shop:row"}]
"""


def test_a_window_of_numbers_that_waits_for_the_watermark_is_combined_before_the_shuffle() -> None:
    counts = job(COUNTS)
    assert (
        "  count: reduce, fixed window hours of count combined before the shuffle"
        in render(compile_job(counts), counts).splitlines()
    )


@pytest.mark.parametrize(
    ("this", "that", "reason"),
    [
        ("aggregation: count", "aggregation: conj", "states of conj are not numbers"),
        ("type: watermark", "type: segment, threshold: [9, elements]",
         "trigger segment looks at each segment"),
        (", watermarkKey: at", "", "no input assigns watermarks, so each segment is one"),
        ("fluxPolicy: continue", 'fluxPolicy: continue, uniquenessKey: id',
         "uniquenessKey looks at each segment"),
        ("type: fixed, windowKey: at, range: [1, hour]",
         "type: session, windowKey: at, timeoutGap: [1, hour]",
         "session extents depend on all segments"),
    ],
)  # fmt: skip
def test_any_other_window_is_folded_behind_the_shuffle_and_the_plan_says_why(
    this: str, that: str, reason: str
) -> None:
    (window,) = compile_job(job(COUNTS.replace(this, that))).exchanges[0].windows
    assert (window.combined, window.reason) == (False, reason)


def test_all_that_spark_cannot_do_is_refused_at_once_by_key_path() -> None:
    with pytest.raises(ManifestError) as raised:
        compile_job(
            job("""
  workflow: [[a, out], [b, out], [c, out], [out, away]]
  catalog:
    - {name: a, type: input, plugin: generator}
    - {name: b, type: input, plugin: "shop:reader"}
    - {name: c, type: input, plugin: spark, options: {path: p, format: csv}}
    - {name: out, type: reduce}
    - {name: away, type: output, plugin: "shop:writer"}
  lifecycles: [{task: all, calls: "shop:calls"}]
  windows: [{id: ever, task: out, type: global, aggregation: count}]
  triggers: [{windowId: ever, type: timer, period: [1, second], refinement: accumulating,
              emit: "shop:row"}]
""")
        )
    assert [each.path for each in raised.value.problems] == [
        "spec.catalog[2].plugin",
        "spec.catalog[4].plugin",
        "spec.lifecycles[0]",
    ]
    assert all("engine: peers" in each.hint for each in raised.value.problems)


def test_the_command_prints_the_plan_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["plan", "--engine", "spark", str(EXAMPLES / "hello/job.yaml")])
    assert "greet: function, hello:greet on dicts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "fragments"),
    [
        ("flights/job.yaml", 1),
        ("flights/outliers.yaml", 3),
        ("flights/windows.yaml", 2),
        ("windows/fixed.yaml", 2),
        ("windows/own.yaml", 2),
        ("windows/session.yaml", 2),
        ("windows/sliding.yaml", 2),
        ("nexmark/q5.yaml", 3),
        ("nexmark/q8-columns.yaml", 2),
        ("failures/job.yaml", 2),
        ("joins/job.yaml", 1),
        ("features/streams.yaml", 3),
        ("nexmark/q9.yaml", 3),
    ],
)
def test_the_examples_can_be_planned(file: str, fragments: int) -> None:
    plan = compile_job(parse_manifest((EXAMPLES / file).read_bytes()))
    assert len(plan.fragments) == fragments


def test_a_plan_says_which_tables_a_task_looks_up() -> None:
    job = parse_manifest((EXAMPLES / "joins/job.yaml").read_bytes())
    assert (
        "    named: function, looks up products, which each process reads once"
        in render(compile_job(job), job).splitlines()
    )


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("partitioned.yaml", "known: function, looks up customers, which each process reads once, "
         "a part for each bucket"),
        ("loop.yaml", "step: function, market:collatz on dicts, sends back to step"),
    ],
)  # fmt: skip
def test_a_plan_says_what_is_in_parts_and_what_goes_back(file: str, line: str) -> None:
    job = parse_manifest((EXAMPLES / "features" / file).read_bytes())
    assert line in [each.strip() for each in render(compile_job(job), job).splitlines()]


def test_two_streams_meet_behind_a_shuffle_which_hears_every_watermark() -> None:
    job = parse_manifest((EXAMPLES / "features/streams.yaml").read_bytes())
    paid, valued = compile_job(job).exchanges
    assert (paid.key, paid.apart) == ("order = of", ("orders", "payments"))
    assert (valued.key, valued.apart) == ("currency = currency", ("paid", "rates"))
    assert {paid.watermarks, valued.watermarks} == {"batches"}
    lines = [line.strip() for line in render(compile_job(job), job).splitlines()]
    assert "shuffle to paid in fragment 1, by order = of" in lines
    assert "paid: join, brings orders and payments together, watermarks of every batch" in lines


PROCESSED = """
  workflow: [[a, named], [b, named], [named, print]]
  catalog:
    - {name: a, type: input, plugin: files, options: {path: names.jsonl}}
    - {name: b, type: input, plugin: files, options: {path: orders.jsonl}}
    - {name: named, type: function, processor: "shop:Named"}
    - {name: print, type: output, plugin: stdout}
"""


def test_a_processor_is_behind_a_shuffle_that_keeps_its_parents_apart_and_says_ends() -> None:
    made = job(PROCESSED)
    (named,) = compile_job(made).exchanges
    assert (named.key, named.apart, named.ends, named.always) == (None, ("a", "b"), True, True)
    lines = [line.strip() for line in render(compile_job(made), made).splitlines()]
    assert lines.count("shuffle to named in fragment 1, all to one bucket") == 2
    assert "named: function, shop:Named on dicts, keeps a and b apart" in lines


TRACKED = JOINED.replace("[read, both], ", "").replace(
    """{name: both, type: join, left: {task: totals, key: shop, at: at},
       right: {task: read, key: shop, at: at}, range: [1, hour]}""",
    """{name: both, type: function, processor: "shop:Both"}""",
)


@pytest.mark.parametrize("spec", [JOINED, TRACKED], ids=["a join", "a processor"])
def test_a_window_above_a_task_with_state_is_not_combined(spec: str) -> None:
    found = compile_job(job(spec)).exchange("totals")
    assert found is not None
    reason = "tasks with state below it hear each watermark"
    assert [each.reason for each in found.windows] == [reason]
    assert found.watermarks == "batches"


def test_a_trigger_by_the_clock_is_refused_in_the_example_that_has_one() -> None:
    with pytest.raises(ManifestError, match=r"spec\.triggers\[0\]\.period"):
        compile_job(parse_manifest((EXAMPLES / "windows/global.yaml").read_bytes()))


class Cores:
    """A session of so many cores."""

    def __init__(self, cores: int, said: int = 200) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=cores)
        self.conf = {PARTITIONS: str(said)}


@pytest.mark.parametrize(
    ("cores", "partitions", "said", "buckets"),
    [(1, 2, None, 8), (16, 2, None, 16), (16, 9, None, 32), (64, 1, None, 8), (16, 0, None, 32),
     (2, 60, None, 60), (200, 900, None, 128),
     (16, 2, 5, 5), (1, 1, 500, 128)],
)  # fmt: skip
def test_groups_are_in_as_many_buckets_as_cores_and_data_ask_for(
    cores: int, partitions: int, said: int | None, buckets: int
) -> None:
    conf = {} if said is None else {PARTITIONS: str(said)}
    request = SimpleNamespace(master="spark://host:7077", spark_conf=conf)
    assert buckets_of(Cores(cores, said or 200), request, partitions) == buckets  # type: ignore[arg-type]
