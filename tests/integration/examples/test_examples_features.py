"""The small examples of single features do what their first lines say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.printing import printed

from onyx import api
from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
FOLDER = Path(__file__).parents[3] / "examples" / "features"
TIMEOUT_S = 120.0
Segments = list[dict[str, Any]]
Run = Callable[[str], Segments]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEnv]:
    folder = tmp_path_factory.mktemp("data")
    (folder / "orders.jsonl").write_bytes((FOLDER / "orders.jsonl").read_bytes())
    settings = Settings(data_dir=str(folder), tags=("till",))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        with with_test_env(8, modules=["market", "boxes"], settings=settings) as env:
            yield env


@pytest.fixture
def run(env: TestEnv, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda file: printed(FOLDER / file, env, capsys)


def test_an_order_goes_where_a_condition_of_it_holds(run: Run) -> None:
    found = run("conditions.yaml")
    went = Counter((each["to"], each["id"]) for each in found if "id" in each)
    assert went == {
        ("large", 2): 2,
        ("liked", 1): 1,
        ("liked", 2): 2,
        ("liked", 3): 1,
        ("small", 4): 1,
        ("unpaid", 3): 1,
        ("wrong", 5): 1,
    }
    assert [each["error"]["type"] for each in found if "error" in each] == ["KeyError"]
    assert not any("card" in each for each in found if each["to"] == "large")


def test_hooks_are_called_around_a_task_that_begins_anew(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("lifecycles.yaml")
    # A task ends when the log says that its job has completed: its last hook may come after that.
    deadline_s = time.monotonic() + TIMEOUT_S
    while not any(each.get("orders") == 7 for each in found) and time.monotonic() < deadline_s:
        time.sleep(0.01)
        found += [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["id"]: each["answer"] for each in found if "id" in each} == {
        1: 12, 2: 100, 3: 40, 4: 6, 5: 18, 6: 24
    }  # fmt: skip
    closed = [each["orders"] for each in found if "server" in each]
    assert len(closed) >= 2
    assert max(closed) == 7


def test_groups_are_by_keys_and_by_a_function_and_count_once(run: Run) -> None:
    found = run("groups.yaml")
    items = {each["customer"]: each["items"] for each in found if "items" in each}
    assert items == {
        "ann": ["cake", "tea"], "bob": ["cake", "soap"], "cid": ["tea"], None: ["tea"]
    }  # fmt: skip
    states = {each["group"]: each["state"] for each in found if "state" in each}
    assert states == {"large": 50, "small": 12, "cake": 3, "tea": 3, "soap": 1}


def test_a_queue_hears_what_became_of_its_messages(run: Run) -> None:
    found = run("returned.yaml")
    assert sorted(each["id"] for each in found if "id" in each) == [1, 3]
    [refused] = [each for each in found if "refused" in each]
    assert refused["refused"] == 2
    assert refused["because"].startswith("sell: LookupError: soap is not sold (market.py, line ")


def test_a_processor_packs_boxes(run: Run) -> None:
    boxes = Counter((each["customer"], tuple(each["box"])) for each in run("processors.yaml"))
    assert boxes == {
        ("ann", (1, 3)): 1,
        ("bob", (2, 5)): 1,
        ("bob", (2,)): 1,
        ("cid", (4,)): 1,
        (None, (6,)): 1,
    }


def test_triggers_fire_on_a_sign_and_with_every_other_segment(run: Run) -> None:
    found = run("triggers.yaml")
    cheapest = [each for each in found if "cheapest" in each]
    assert sum(each["item"] == "cake" and each["cheapest"] <= 50 for each in cheapest) == 3
    assert all(len(each["cart"]) >= 1 for each in found if "cart" in each)


def test_most_of_an_hour_is_reported_early_and_all_of_it_at_its_end(run: Run) -> None:
    found = run("percentile.yaml")
    whole = {(each["group"], each["lower"]): each["state"] for each in found if "state" in each}
    early = {(each["item"], each["from"]): each["so far"] for each in found if "so far" in each}
    assert sorted(whole.values()) == [3, 6, 9, 12, 120]
    assert early.keys() == whole.keys()


def test_orders_of_known_customers_get_what_tables_say(run: Run) -> None:
    found = run("tables.yaml")
    assert sorted((each["id"], each["box"], each["about"]) for each in found if each["about"]) == [
        (1, "A", {"grams": 100}),
        (2, "B", {"grams": 800}),
        (2, "B", {"grams": 800}),
        (3, "B", {"grams": 800}),
    ]
    assert [each["id"] for each in found if each["about"] is None] == [5]


@pytest.mark.parametrize("file", ["shares.yaml", "together.yaml", "tags.yaml", "limits.yaml"])
def test_every_order_arrives_wherever_peers_work(run: Run, file: str) -> None:
    assert sorted(each["id"] for each in run(file)) == [1, 2, 2, 3, 4, 5, 6]


def test_orders_that_are_kept_are_read_by_another_job_too(
    env: TestEnv, capsys: pytest.CaptureFixture[str]
) -> None:
    depot, follows = (
        env.submit(parse_manifest((FOLDER / file).read_text("utf-8"), file))
        for file in ("depot.yaml", "follows.yaml")
    )
    orders = [json.loads(each) for each in (FOLDER / "orders.jsonl").read_text().splitlines()]
    with api.appender(env.settings, depot) as appender:
        appender.append(orders, timeout_s=TIMEOUT_S)
    env.client.drain(depot)
    assert env.client.wait(depot, TIMEOUT_S)
    assert env.client.wait(follows, TIMEOUT_S)
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert Counter(each["id"] for each in found) == Counter(each["id"] for each in orders * 2)


def printed_by(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, program],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_jobs_are_controlled_from_python() -> None:
    assert printed_by("control.py") == [
        "once completed: True",
        "endless completed: True",
        "killed completed: False",
    ]


@pytest.mark.slow
def test_a_job_goes_on_with_the_other_engine() -> None:
    counted = [f"{customer} without a gap: True" for customer in ("ann", "bob", "cid")]
    assert printed_by("engines.py") == ["completed: True", *counted]
