"""Every example in Python on every page is run, and does what the page says."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.docs.test_docs_pages import BLOCK, PAGES, ROOT, name

import onyx
from onyx import api, testing
from onyx.builder import Job
from onyx.client.appender import Appender
from onyx.ids import JobId, PeerId
from onyx.model.parsing.job import parse_manifest
from onyx.processors import Processor
from onyx.program.lifecycles import HOOKS
from onyx.program.program import event_of
from onyx.testing import verify_processor

Names = dict[str, Any]
Run = Callable[["Page"], None]

ELSEWHERE = {
    "README.md": "tests/integration/examples/test_examples_programs.py",
    "docs/guide/columns.md": "tests/unit/docs/test_docs_columns.py",
    "docs/guide/debugging.md": "tests/integration/examples/test_examples_programs.py",
    "docs/guide/plugins.md": "tests/unit/plugins/test_plugins_guide.py",
    "docs/guide/programs.md": "tests/integration/examples/test_examples_programs.py",
}
"""Pages whose examples have a test of their own."""


class Page:
    """The examples of a page, which are one program."""

    def __init__(self, page: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self.folder, self.patch = page, folder, patch
        self.blocks = [text for kind, text in BLOCK.findall(page.read_text()) if kind == "python"]

    def run(self, *blocks: int, **given: Any) -> Names:
        """Run the examples with these numbers, or all, with what the page takes as given."""
        names: Names = {"__name__": self.path.stem, **given}
        for block in blocks or range(len(self.blocks)):
            code = compile(self.blocks[block], str(self.path), "exec", dont_inherit=True)
            exec(code, names)
        return names


def builder(page: Page) -> None:
    page.patch.syspath_prepend(str(page.folder))
    (page.folder / "ages.py").write_text(page.blocks[0])
    (page.folder / "people.csv").write_text("name,born\n")
    page.patch.chdir(page.folder)
    for module in ("ages", "shop"):
        page.patch.delitem(sys.modules, module, raising=False)
    ages = importlib.import_module("ages").job
    assert ages.validate() == []
    assert Job.from_yaml(ages.to_yaml()).build() == ages.build()

    page.patch.syspath_prepend(str(ROOT / "examples" / "builder"))
    orders = page.run(1)["job"]
    assert orders.build() == importlib.import_module("shop").job.build()
    for module in ("ages", "shop"):
        page.patch.delitem(sys.modules, module)


def functions(page: Page) -> None:
    shop = MagicMock()
    names = page.run(shop=shop)
    assert names["far"]({}, {}, {"distance": 7}, [], 5)
    shop.ask.side_effect = [3, None, TimeoutError("busy")]
    assert names["price"]({"item": "tea"}) == {"item": "tea", "price": 3}
    assert names["price"]({"item": "air"}) is onyx.FAIL
    with pytest.raises(onyx.Retry, match="no answer: busy"):
        names["price"]({"item": "tea"})

    hooks, lifecycle = names["calls"](), SimpleNamespace(options={"address": "a:1"})
    event = {"task": "read", "scheduler_event": "job-completed"}
    event |= hooks["before_task_start"](event, lifecycle)
    hooks["after_ack_segment"](event, ("part", 7), lifecycle)
    hooks["after_task_stop"](event, lifecycle)
    assert event["acked"] == [("part", 7)]


def joins(page: Page) -> None:
    order = {"product": 1, "customer": "a"}
    check = page.run(0)["check"]
    assert check({1: {"price": 5}}, set(), order) == {**order, "price": 5}
    assert check({1: {"price": 5}}, {"a"}, order) is None
    assert check({}, set(), order) is None
    table = SimpleNamespace(rows_of=lambda keys: {"price": pa.array([5] * len(keys))})
    batch = page.run(1)["check"](table, set(), pa.RecordBatch.from_pylist([order]))
    assert batch.to_pylist() == [{**order, "price": 5}]


def kafka(page: Page) -> None:
    assert page.run()["price"]({"count": 2}) == {"count": 2, "total": 6}


def keyed_state(page: Page) -> None:
    names = page.run()
    timers: dict[str, int] = {}
    state = SimpleNamespace(
        key="ada", items={}, pages=[], orders=None, clear=MagicMock(),
        set_timer=timers.__setitem__, timer=timers.get,
    )  # fmt: skip
    for _ in range(2):
        assert not names["shop"]({"item": "tea", "page": "/", "time": 0}, state)
    assert (state.items, state.pages, state.orders) == ({"tea": 2}, ["/", "/"], 2)
    assert timers == {"left": 1_800_000}
    left = names["left"](SimpleNamespace(due_ms=5), state)
    assert left == {"user": "ada", "left": 5, "items": {"tea": 2}}
    state.clear.assert_called_once_with()
    (late,) = names["shop"]({"item": "cup", "page": "/", "time": 1_800_000}, state)
    assert late == {"user": "ada", "left": 1_800_000, "items": {"tea": 2}}
    assert timers == {"left": 3_600_000}

    state = SimpleNamespace(
        keys=["a", "b"], groups=pa.array([0, 1, 0]), total=pa.array([None, 10.0], pa.float64())
    )
    made = names["running"](pa.RecordBatch.from_pydict({"kwh": [1.0, 2.0, 3.0]}), Totals(state))
    assert made["total"].to_pylist() == [4.0, 12.0, 4.0]


class Totals:
    """State over columns with one value, which is a column again when it is set."""

    def __init__(self, state: SimpleNamespace) -> None:
        self.keys, self.groups, self._total = state.keys, state.groups, state.total

    @property
    def total(self) -> pa.Array:
        return self._total

    @total.setter
    def total(self, values: Any) -> None:
        self._total = pa.array(values)


def loops(page: Page) -> None:
    names = page.run()
    names["roads"] = lambda node: {0: [(1, 5), (2, 1)], 1: [], 2: [(1, 3)]}[node]
    states = {node: SimpleNamespace(best=None) for node in range(3)}
    waiting, news = [{"node": 0, "far": 0, "news": False}], []
    while waiting:
        segment = waiting.pop(0)
        for each in names["relax"](segment, states[segment["node"]]):
            (news if each["news"] else waiting).append(each)
    assert [(each["node"], each["far"]) for each in news] == [(0, 0), (1, 5), (2, 1), (1, 4)]


def order(page: Page) -> None:
    latest, state = page.run()["latest"], SimpleNamespace(at=None)
    seen = [latest({"at": at}, state) for at in (1, 3, 2, 3, 4)]
    assert seen == [{"at": 1}, {"at": 3}, None, None, {"at": 4}]


def processors(page: Page) -> None:
    names = page.run()
    names["test_boxes"]()
    words: type[Processor] = names["Words"]
    lines = [{"text": "a b"}, {"text": "c"}]
    verify_processor(words, input=lines, output=[{"word": each} for each in "abc"])


def queues(page: Page) -> None:
    rows = [{"number": 1}, {"number": 2}]
    answers = MagicMock()
    answers.get.return_value.json.side_effect = [{"orders": rows}, {"orders": []}]
    page.patch.setitem(sys.modules, "requests", answers)
    assert list(page.run(0)["pages"](None)) == [(rows, 2)]

    answers.get.return_value.json.side_effect = [rows, []]
    dlt = ModuleType("dlt")
    dlt.resource = lambda of: lambda after: (row for part in of(after) for row in part)  # type: ignore[attr-defined]
    helpers = SimpleNamespace(requests=answers)
    page.patch.setitem(sys.modules, "dlt", dlt)
    page.patch.setitem(sys.modules, "dlt.sources", ModuleType("dlt.sources"))
    page.patch.setitem(sys.modules, "dlt.sources.helpers", helpers)
    assert list(page.run(1)["rows"](None)) == [(row, row["number"]) for row in rows]

    server = MagicMock()
    letters = [SimpleNamespace(text="hello", receipt="r", id="i")]
    server.take.side_effect = [letters, [], ConnectionError("gone")]
    names = page.run(2, connect=lambda address: server)
    mailbox = names["mailbox"](
        SimpleNamespace(options={"settings": {"address": "a:1"}}), "partition", None
    )
    found = mailbox.receive(0.1)
    assert (found.segments, found.handles, found.ids) == ([{"text": "hello"}], ["r"], ["i"])
    assert mailbox.receive(0.1) is None
    with pytest.raises(names["Unavailable"], match="the mailbox is away: gone"):
        mailbox.receive(0.1)
    mailbox.ack(["r"])
    server.confirm.assert_called_once_with(["r"])


def requests(page: Page) -> None:
    client = create_autospec(Appender)
    page.patch.setattr("onyx.client.Appender", client, raising=False)
    page.run(0, record_batch=pa.RecordBatch.from_pylist([{"order": 1}]), batches=[[], []])
    appender = client.return_value.__enter__.return_value
    assert (appender.append.call_count, appender.send.call_count) == (2, 2)
    page.run(1)
    assert client.call_args.kwargs["client"].token_file == "/etc/shop/orders-token"

    returned = MagicMock()
    page.patch.setattr("onyx.ack_return", returned)
    assert page.run(2)["price"]({"count": 2}) == {"count": 2, "total": 6}
    assert [each.args for each in returned.call_args_list] == [("total", 6), ("orders", None)]


def spark_data(page: Page) -> None:
    spark, orders = spark_of(page), MagicMock()
    page.run(spark=spark, orders=orders)
    page.run(0)["late"](spark, 5)
    spark.read.parquet.assert_called_once_with("/shared/flights")
    assert spark.dataSource.register.call_count == 2
    assert spark.readStream.format.call_args.args == ("onyx",)
    assert orders.writeStream.format.call_args.args == ("onyx",)


def spark_stages(page: Page) -> None:
    flights, spark = MagicMock(), ModuleType("pyspark.sql")
    flights.delay.__ge__.return_value = "condition"
    spark.functions = MagicMock()  # type: ignore[attr-defined]
    page.patch.setitem(sys.modules, "pyspark.sql", spark)
    page.run(0)["delays"](flights)
    flights.dropDuplicates.assert_called_once_with(["row"])
    for block in (1, 2):
        page.run(block)["late"](flights, MagicMock(), 5)
    assert [each.args for each in flights.where.call_args_list] == [("condition",)] * 2


def spark_debugging(page: Page) -> None:
    def late_ones(_: Any, flights: list[dict[str, Any]], *, least: float) -> list[dict[str, Any]]:
        return [each for each in flights if each["delay"] >= least]

    run_stage = create_autospec(testing.run_stage, side_effect=late_ones)
    page.patch.setattr(testing, "run_stage", run_stage)
    page.run(0, late=None)["test_late_flights"]()


def spark_of(page: Page) -> MagicMock:
    """Tests with Spark call the same ones; here it is about what the page says."""
    source = ModuleType("onyx.spark_source")
    source.OnyxDataSource = type("OnyxDataSource", (), {})  # type: ignore[attr-defined]
    page.patch.setitem(sys.modules, "onyx.spark_source", source)
    return MagicMock()


def state_and_event_time(page: Page) -> None:
    extent = SimpleNamespace(group="JFK", lower=0, upper=1, state=5)
    one = create_autospec(api.window_state, return_value=SimpleNamespace(extents=[extent]))
    pages = create_autospec(api.window_pages, return_value=[MagicMock()])
    page.patch.setattr(api, "window_state", one)
    page.patch.setattr(api, "window_pages", pages)
    page.run(settings=api.Settings(), job="j")
    assert one.call_args.args[2] == pages.call_args.args[2] == "per-hour"


def upgrading(page: Page) -> None:
    (page.folder / "out").mkdir()
    for job, row in (("first", 1), ("second", 2), ("third", 3)):
        frame = pd.DataFrame({"row": [row]})
        frame.to_parquet(page.folder / "out" / f"part-write--{job}--0.parquet")
    page.patch.chdir(page.folder)
    names = page.run(spark=MagicMock())
    assert sorted(names["table"]["row"].to_pylist()) == [1, 3]


def waiting(page: Page) -> None:
    def ask(item: str, timeout_s: float) -> int:
        if item == "air":
            raise TimeoutError("busy")
        return len(item)

    tea, air = page.run(shop=SimpleNamespace(ask=ask))["prices"]([{"item": "tea"}, {"item": "air"}])
    assert tea == {"item": "tea", "price": 3}
    assert isinstance(air, onyx.Retry)
    assert str(air) == "no answer: busy"


def windows(page: Page) -> None:
    names = page.run()
    event = {"group_key": "/", "lower_bound": 0}
    assert names["row"]({}, None, None, event, 5) == {"page": "/", "hour": 0, "visits": 5}

    distinct = names["distinct"]()
    state = distinct["init"](None)
    for user in ("b", "a", "b"):
        update = distinct["create_state_update"](None, state, {"user": user})
        state = distinct["apply_state_update"](None, state, update)
    assert state == ["b", "a"]
    assert distinct["super_aggregation"](None, state, ["c"]) == ["a", "b", "c"]

    doubling, count, fired = names["doubling"](), 0, []
    for number in range(1, 9):
        event = {"event_type": "new-segment"}
        count = doubling["next_state"](None, count, event)
        fired += [number] if doubling["trigger_fire"](None, count, event) else []
    assert fired == [1, 2, 4, 8]

    spread, rows = names["spread"](), pa.RecordBatch.from_pydict({"delay": [4, 2, 9]})
    update = spread["create_state_update"](None, [5, 5], rows)
    assert spread["apply_state_update"](None, [5, 5], update) == [2, 9]

    busiest = names["busiest"]()
    rows = pa.RecordBatch.from_pydict({"hours": [1.0, 3.0, 2.0]})
    states = busiest["fold_array"](None, busiest["init_array"](None, 2), np.array([0, 1, 0]), rows)
    merged = busiest["merge_array"](None, states, states)
    assert merged["flights"].tolist() == [4, 2]
    assert merged["longest"].tolist() == [2.0, 3.0]

    groups = pa.RecordBatch.from_pydict({"group": ["a", "b"], "state": [100, 101]})
    assert names["busy"]({}, None, None, {}, groups)["group"].to_pylist() == ["b"]


RUNS: dict[str, Run] = {
    f"docs/guide/{each.__name__.replace('_', '-')}.md": each
    for each in (
        builder, joins, kafka, keyed_state, loops, order, processors, queues, requests, spark_data,
        spark_debugging, spark_stages, state_and_event_time, upgrading, waiting, windows,
    )
} | {"docs/guide/functions-and-flow-conditions.md": functions}  # fmt: skip


@pytest.mark.parametrize("page", sorted(RUNS))
def test_the_examples_of_a_page_do_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RUNS[page](Page(ROOT / page, tmp_path, monkeypatch))


def test_every_hook_and_every_key_of_the_event_is_on_the_page() -> None:
    text = (ROOT / "docs/guide/functions-and-flow-conditions.md").read_text()
    listed = {key for row in re.findall(r"^\| (`.*?`) \|", text, re.M) for key in words(row)}
    entry = parse_manifest(MANIFEST).catalog[0]
    event = set(event_of(PeerId("p"), JobId("j"), parse_manifest(MANIFEST), entry))
    for path in (ROOT / "worker" / "onyx").rglob("*.py"):
        code = path.read_text()
        event |= set(re.findall(r"program\.event\[\"(\w+)\"\]", code))
        for given in re.findall(r"program\.event\.update\((.*?)\)$", code, re.M):
            event |= set(re.findall(r"(\w+)=", given))
    assert {*HOOKS, *event} <= listed


def words(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", row)


MANIFEST = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: j}
spec:
  workflow: [[read, write]]
  catalog:
    - {name: read, type: input, plugin: generator}
    - {name: write, type: output, plugin: blackhole}
"""


def test_every_page_with_an_example_in_python_has_a_test_that_runs_it() -> None:
    with_python = {
        name(page)
        for page in PAGES
        if any(kind == "python" for kind, _ in BLOCK.findall(page.read_text()))
    }
    assert with_python == {*RUNS, *ELSEWHERE}
    assert [each for each in ELSEWHERE.values() if not (ROOT / each).exists()] == []
