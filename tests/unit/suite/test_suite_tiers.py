"""Which tests a tier has, what is said of those that pass or are skipped, and the budget."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.servers.processes import PRELOADED
from tests.support.suite.costs import OVER_MAX, Meter, layer_of, problems

TESTS = Path(__file__).parents[2]
SUITE_PLUGINS = ["-p", "tests.support.suite.tiers"]
FILE = """
import pytest
from hypothesis import given, strategies

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.short(2)
@pytest.mark.parametrize("step", range(5))
def test_step(step): pass

@given(strategies.none())
def test_property(value): pass
"""
STEPS = """
import pytest

@pytest.fixture
def broken():
    yield
    assert False

def test_passes(): pass
def test_fails(): assert False
def test_is_torn_down(broken): pass
def test_is_skipped(): pytest.skip("for now")
"""
MARKS = "[pytest]\nmarkers =\n    slow\n    short(n)\n"
FEW = {"test_step[0]", "test_step[2]"}
OTHERS = {"test_step[1]", "test_step[3]", "test_step[4]"}


@pytest.mark.parametrize(
    ("tier", "names"),
    [
        ("short", {"test_plain", "test_property", *FEW}),
        ("rest", {"test_slow", "test_property", *OTHERS}),
        (None, {"test_plain", "test_slow", "test_property", *FEW, *OTHERS}),
    ],
)
def test_a_tier_has_its_tests(pytester: pytest.Pytester, tier: str | None, names: set[str]) -> None:
    pytester.makeini(MARKS)
    pytester.makepyfile(FILE)

    run = pytester.inline_run(*SUITE_PLUGINS, *([f"--tier={tier}"] if tier else []))

    assert {report.location[2] for report in run.getreports("pytest_runtest_logreport")} == names


def test_what_has_a_session_of_spark_is_marked_as_a_test_with_servers() -> None:
    """`make check` leaves it out: a JVM takes as long as a thousand other tests."""
    texts = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    using = [path for path, text in texts.items() if "import local_spark" in text]

    assert using
    assert [path for path in using if "mark.server" not in texts[path]] == []


def test_skips_are_one_line_with_their_reasons(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("what", ["a broker", "a broker", "a store"])
        def test_something(what): pytest.skip(f"there is no {what}")
        """
    )

    result = pytester.runpytest_inprocess(*SUITE_PLUGINS)

    result.stdout.fnmatch_lines(
        ["skipped 3 tests: 2: there is no a broker; 1: there is no a store"]
    )


def test_a_process_says_of_what_passed_only_its_call_and_what_all_steps_have_cost(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    pytester.makepyfile(**{"tests/unit/test_steps": STEPS})
    plugins = [f"tests.support.suite.{name}" for name in ("tiers", "units", "costs")]

    run = pytester.inline_run(*(f"-p{each}" for each in plugins))

    reports = run.getreports("pytest_runtest_logreport")
    steps = {"setup", "call", "teardown"}
    said = {name: set() for name in ("passes", "fails", "is_torn_down", "is_skipped")}
    for report in reports:
        said[report.location[2].removeprefix("test_")].add(report.when)
    assert said == {"passes": {"call"}, **dict.fromkeys(list(said)[1:], steps)}
    assert [key for key, _ in reports[0].user_properties] == ["cpu_s"] * len(steps)


@pytest.mark.parametrize(
    ("cost_s", "slowness", "is_beyond"),
    [
        (100 * OVER_MAX - 1, 1.0, False),
        (100 * OVER_MAX + 1, 1.0, True),
        (100 * OVER_MAX + 1, 1.1, False),
        (100 * OVER_MAX - 1, 0.9, True),
    ],
)
def test_a_layer_may_cost_its_budget_on_this_machine(
    cost_s: float, slowness: float, is_beyond: bool
) -> None:
    found = problems({"unit": cost_s}, {"unit": 100.0}, slowness)

    assert bool(found) == is_beyond
    assert all(each.startswith("unit took 1") for each in found)


def test_a_layer_without_a_budget_is_named() -> None:
    assert problems({"new": 0.1}, {}, 1.0) == ["new has no budget in budget.toml"]


def test_a_file_is_of_the_folder_below_tests() -> None:
    assert layer_of("tests/unit/flow/test_flow_apply.py") == "unit"


@pytest.mark.parametrize("looks", [True, False])
def test_a_process_counts_once_whether_it_runs_or_has_ended(looks: bool) -> None:
    meter = Meter()
    meter.used_s(looks_at_running=True)
    busy = "sum(range(20_000_000)); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while_it_runs_s = meter.used_s(looks_at_running=True)
        process.communicate(b"\n")
    after_its_end_s = meter.used_s(looks_at_running=looks)

    assert while_it_runs_s > 0.05
    assert after_its_end_s < while_it_runs_s


def test_what_forks_of_tests_begin_with_is_there() -> None:
    """Else all that they start is executed, which costs seconds each, and only a log says so."""
    assert [module for module in PRELOADED if find_spec(module) is None] == []
