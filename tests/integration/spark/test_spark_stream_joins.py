"""Joins of two streams on real Spark: the same as a plain loop, in both formats, as one query and
in micro-batches, one of which is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.inputs import feed
from tests.support.spark.query import publish_all, request_of, run_query
from tests.support.spark.session import MASTER, local_spark
from tests.support.spark.stream import Worker, written
from tests.support.stream_joins import Plain, counted

from onyx.model.parsing.job import parse_manifest
from onyx.spark_query.session import opened

pytestmark = pytest.mark.server
CONF = {"spark.sql.shuffle.partitions": "3"}
INPUTS = "tests.support.spark.inputs"
ROOT = Path(__file__).parents[3]
KEYS, BEFORE_MS, AFTER_MS = 40, 5, 9
Rows = list[dict[str, Any]]
ORDERS: Rows = [{"id": n % KEYS, "at": n, "n": n} for n in range(600)]
PAYMENTS: Rows = [
    {"of": n * 7 % (KEYS + 5), "at": n + n % 3, "n": -n} for n in range(600) if n % 4
]  # fmt: skip
SIDES = {"orders": ORDERS, "payments": PAYMENTS}
ASOF = Plain("asof", (("id",), ("of",)), None, prefixes=("", "p_"))
OUTER = Plain("outer", (("id",), ("of",)), BEFORE_MS, AFTER_MS, prefixes=("", "p_"))
JOINS = {
    "outer": (OUTER, {"within": {"before": BEFORE_MS, "after": AFTER_MS}}),
    "asof": (ASOF, {}),
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        for name, rows in SIDES.items():
            (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        request = request_of(job_of("outer", folder, False), folder, (), **OF_SESSION)
        with local_spark(folder, partial(opened, request)) as session:
            yield session


OF_SESSION: dict[str, Any] = {"master": MASTER, "spark_conf": CONF}


def job_of(how: str, folder: Path, columns: bool, endless: bool = False) -> Any:
    def read(name: str) -> dict[str, Any]:
        options: dict[str, Any] = {"path": str(folder / f"{name}.jsonl")}
        if endless:
            options = {"feed": str(folder / name), "aRead": 40}
        return {"name": name, "type": "input", "watermarkKey": "at", "batchSize": 50,
                "plugin": f"{INPUTS}:fed" if endless else "files",
                "allowedDisorder": [3, "milliseconds"], "options": options}  # fmt: skip

    catalog: list[dict[str, Any]] = [
        *map(read, SIDES),
        {"name": "both", "type": "join", "how": how, **JOINS[how][1],
         "left": {"task": "orders", "key": "id", "at": "at"},
         "right": {"task": "payments", "key": "of", "at": "at", "prefix": "p_"}},
        {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}},
    ]  # fmt: skip
    form = {"batchFormat": "arrow"} if columns else {}
    spec = {
        "guarantee": "exactly-once",
        "engine": "spark",
        "workflow": [["orders", "both"], ["payments", "both"], ["both", "write"]],
        "catalog": [{**entry, **form} for entry in catalog],
    }
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "paid"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["outer", "asof"])
@pytest.mark.parametrize("columns", [False, True])
def test_a_query_joins_as_a_plain_loop_does(
    how: str, columns: bool, tmp_path: Path, spark: Any
) -> None:
    for name, rows in SIDES.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    request = request_of(job_of(how, tmp_path, columns), tmp_path, (), **OF_SESSION)
    reply = run_query(request, spark)
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert counted(written(tmp_path)) == counted(JOINS[how][0].join(ORDERS, PAYMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["outer", pytest.param("asof", marks=pytest.mark.slow)])
@pytest.mark.parametrize("columns", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_micro_batches_of_which_one_is_lost_join_as_a_plain_loop_does(
    how: str, columns: bool, tmp_path: Path, spark: Any
) -> None:
    for name, rows in SIDES.items():
        feed(tmp_path / name, {"a": rows[::2], "b": rows[1::2]}, 100)
    worker = Worker(job_of(how, tmp_path, columns, endless=True), tmp_path, (INPUTS,), **OF_SESSION)

    def more(ends: bool) -> None:
        for name, rows in SIDES.items():
            feed(tmp_path / name, {"a": rows[::2], "b": rows[1::2]}, 300, ends)

    worker.then = lambda batch: more(ends=batch.number > 1)
    worker.dies = lambda batch: "before the commit" if batch.number == 2 else ""
    assert worker.run(spark).failure is not None
    worker.dies = lambda batch: ""
    reply = worker.run(spark)
    assert reply.failure is None, reply.failure
    assert len(worker.batches) >= 2
    assert counted(written(tmp_path)) == counted(JOINS[how][0].join(ORDERS, PAYMENTS))
