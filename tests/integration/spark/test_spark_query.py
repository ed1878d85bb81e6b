"""Whole jobs on real Spark: one session for all, and the process that a worker starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.spark import settings as spark_settings
from tests.support.spark.query import publish_all, request_of, run_query
from tests.support.spark.session import MASTER, local_spark

from onyx.model.parsing.job import parse_manifest
from onyx.model.spark_settings import known_settings
from onyx.spark.child.environment import environment
from onyx.spark.compiler.compile import compile_job
from onyx.spark.driver.request import QueryProgress, QueryReply, lines
from onyx.spark_query.session import opened

pytestmark = pytest.mark.server
EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 540.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The examples, from whose folders Spark's Python workers import too."""
    root = tmp_path_factory.mktemp("examples")
    names = ("failures", "joins", "windows")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            shutil.copytree(EXAMPLES / name, root / name)
            patch.syspath_prepend(str(root / name))
        yield root


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[Any]:
    job = parse_manifest((folder / "windows/fixed.yaml").read_bytes())
    with local_spark(
        folder, partial(opened, request_of(job, folder, (), master=MASTER))
    ) as session:
        yield session


def run(folder: Path, file: str, module: str | None, spark: Any) -> QueryReply:
    job = parse_manifest((folder / file).read_bytes())
    modules = () if module is None else (module,)
    request = request_of(job, folder, modules, master=MASTER)
    reply = run_query(request, spark)
    if reply.failure is None:
        publish_all(request, reply)
    return reply


def written(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("part-*"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.mark.slow
def test_stages_and_shuffles_give_the_rows_of_peers(folder: Path, spark: Any) -> None:
    reply = run(folder / "failures", "job.yaml", "orders", spark)
    assert reply.failure is None, reply.failure
    totals = {each["customer"]: each["total"] for each in written(folder / "failures/totals")}
    assert totals == {"ann": 11, "bob": 5}
    assert len(written(folder / "failures/bad")) == 3


@pytest.mark.slow
def test_tables_give_the_rows_of_peers(folder: Path, spark: Any) -> None:
    reply = run(folder / "joins", "job.yaml", None, spark)
    assert reply.failure is None, reply.failure
    prices = {each["order"]: each["price"] for each in written(folder / "joins/out/priced")}
    assert prices == {1: 4.5, 2: 5.0, 3: 4.9, 4: None}
    assert [each["order"] for each in written(folder / "joins/out/unknown")] == [5]


def test_windows_by_event_time_give_the_rows_of_peers(
    folder: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = run(folder / "windows", "fixed.yaml", "visits", spark)
    assert reply.failure is None, reply.failure
    page = (folder / "windows/README.md").read_text("utf-8")
    expected = [line.strip() for line in page.splitlines() if line.startswith("    {")]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(expected)


@pytest.mark.parametrize(
    "times", [[130, 70, 1, 61, 5], pytest.param([1, 5, 61, 70, 130], marks=pytest.mark.slow)]
)
def test_a_window_gives_the_same_whether_segments_are_in_order_or_not(
    times: list[int], tmp_path: Path, spark: Any
) -> None:
    """In order, it is combined before the shuffle; otherwise the query runs again without."""
    read = [{"key": "a", "at": 60_000 + at * 1000} for at in times]
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "watermarkKey": "at",
             "batchSize": 1, "options": {"segments": read}},
            {"name": "count", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}},
        ],
        "windows": [{"id": "minutes", "task": "count", "type": "fixed", "windowKey": "at",
                     "range": [1, "minute"], "aggregation": "count"}],
        "triggers": [{"windowId": "minutes", "type": "watermark", "refinement": "discarding",
                      "emit": "visits:hour"}],
    }  # fmt: skip
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "minutes"}}
    job = parse_manifest(json.dumps({**head, "spec": spec}).encode())
    assert compile_job(job).exchanges[0].combined
    request = request_of(job, tmp_path, ("visits",), master=MASTER)
    reply = run_query(request, spark)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    found = Counter[str]()
    for each in written(tmp_path / "out"):
        found[each["hour"]] += each["visits"]
    assert found == {"00:01": 2, "00:02": 2, "00:03": 1}


def test_a_failure_comes_out_of_spark_with_its_task_and_segment(folder: Path, spark: Any) -> None:
    text = (folder / "failures/job.yaml").read_text().replace(", deadLetter: bad", "")
    edges = "[[read, price], [price, totals], [totals, print], [price, bad]]"
    (folder / "failures/strict.yaml").write_text(
        text.replace("  catalog:", f"  workflow: {edges}\n  catalog:")
    )
    reply = run(folder / "failures", "strict.yaml", "orders", spark)
    assert reply.failure is not None
    assert reply.failure.by_user
    assert reply.failure.task == "price"
    assert "orders:price raised KeyError" in reply.failure.message
    assert "\tat " not in reply.failure.message


@pytest.mark.slow
def test_the_process_of_a_query_reports_how_it_goes_on_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLES / "hello", tmp_path / "hello")
    monkeypatch.syspath_prepend(str(tmp_path / "hello"))
    job = parse_manifest((tmp_path / "hello/job.yaml").read_bytes())
    request = request_of(job, tmp_path / "hello", ("hello",), master=MASTER)
    done = subprocess.run(
        [sys.executable, "-m", "onyx.spark_query"],
        input=msgspec.json.encode(msgspec.structs.replace(request, parent_pid=os.getpid())),
        stdout=subprocess.PIPE,
        env=environment(MASTER, str(tmp_path)),
        timeout=TIMEOUT_S,
        check=True,
    )
    *before, last = map(lines.decode, done.stdout.splitlines())
    phases = dict.fromkeys(each.phase for each in before if isinstance(each, QueryProgress))
    assert list(phases) == [
        "starting", "running", "done",
    ]  # fmt: skip
    assert isinstance(last, QueryReply)
    assert last.failure is None
    assert last.tasks["print"].written == 3


@pytest.mark.slow
def test_the_table_of_settings_is_that_of_this_spark(spark: Any) -> None:
    """Else: python -m tests.support.spark.settings."""
    assert spark_settings.keys(spark) == set(known_settings())
