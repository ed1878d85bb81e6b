"""The examples of windows print what their page says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.printing import printed

from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
FOLDER = Path(__file__).parents[3] / "examples" / "windows"
Segments = list[dict[str, Any]]
Run = Callable[[str], Segments]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEnv]:
    settings = Settings(data_dir=str(tmp_path_factory.mktemp("data")))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        with with_test_env(4, modules=["visits"], settings=settings) as env:
            yield env


@pytest.fixture
def run(env: TestEnv, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda file: printed(FOLDER / file, env, capsys)


def test_an_hour_of_a_page_is_printed_once_and_what_is_late_by_itself(run: Run) -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    lines = [line.strip() for line in page.splitlines() if line.startswith("    {")]

    assert run("fixed.yaml") == [json.loads(line) for line in sorted(lines)]


def test_each_visit_is_in_the_means_of_two_half_hours(run: Run) -> None:
    means = {(each["page"], each["from"]): each["mean"] for each in run("sliding.yaml")}

    assert {begin: mean for (page, begin), mean in means.items() if page == "/docs"} == {
        "11:45": 70.0,
        "12:00": 70.0,
        "12:15": 80.0,
        "12:30": 70.0,
        "12:45": 60.0,
    }
    assert len(means) == 16


def test_the_way_of_a_user_is_in_the_order_of_the_visits_not_of_their_arrival(run: Run) -> None:
    ways = run("session.yaml")

    assert [each["pages"] for each in ways if each["user"] == "grace"] == [
        ["/", "/", "/news"],
        ["/news"],
        ["/"],
    ]
    assert [(each["from"], each["to"]) for each in ways if each["user"] == "ada"] == [
        ("12:10", "12:40"),
        ("15:00", "15:00"),
    ]


def test_a_timer_tells_the_total_so_far_and_the_end_the_whole(run: Run) -> None:
    reported = run("global.yaml")
    last = [each["visits"] for each in reported if each["because"] == "job-completed"]
    before = [each["visits"] for each in reported if each["because"] == "timer-tick"]

    assert last == [12]
    assert before
    assert max(before) <= 12


def test_an_aggregation_of_ones_own_tells_who_came_with_each_third_visit_and_at_the_end(
    run: Run,
) -> None:
    reported = run("own.yaml")

    assert [(each["page"], *each["users"]) for each in reported] == [
        ("/", "ada", "edsger", "grace"),
        ("/", "ada", "edsger", "grace"),
        ("/", "ada", "grace"),
        ("/docs", "ada", "edsger"),
        ("/docs", "ada", "edsger"),
        ("/news", "grace"),
    ]
