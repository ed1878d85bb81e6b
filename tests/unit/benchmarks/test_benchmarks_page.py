"""The page of figures is made of what was measured, and keeps what was not measured again."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as summary
from benchmarks import checkout, nexmark, page, peers
from benchmarks.figures import Figure, rows
from benchmarks.harness import Contender
from benchmarks.programs import PROGRAMS
from benchmarks.quoted import QUOTED

OLD = page.Run("2026-11-01", "1234abcd", "two cores", "0.1")
NEW = page.Run("2026-11-25", "5678abcd and changes", "two cores", "0.2")


def measured(value: float | None, best: float | None = None) -> list[dict[str, Any]]:
    """Results of `latency`, of which the p99 is missing."""
    return rows([Figure("latency over two hops, dicts, p50", value, "ms", 1.0, best=best)])


def test_the_page_in_the_docs_is_as_the_table_in_code_makes_it() -> None:
    text = page.PAGE.read_text()
    assert page.render(page.read(text)) == text


def test_what_is_not_measured_again_stays_with_its_run(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    one = [Figure("memory growth at the end of a job", 1234.5, "MiB", 192.0)]
    assert page.update(path, "end_memory", rows(one), OLD) == []
    assert page.update(path, "latency", measured(1.5, 1.25), NEW) == ["p99"]
    found = page.read(path.read_text())
    ((memory_at, memory), (latency_at, latency)) = sorted(found.items())
    assert (memory_at[0], memory) == ("end_memory", page.Found("1,234", OLD))
    assert (latency_at[0], latency) == ("latency", page.Found("1.5 (1.25)", NEW))
    assert page.NOT_MEASURED in path.read_text()


def test_a_later_run_replaces_a_figure_even_by_noise(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page.update(path, "latency", measured(1.5), OLD)
    page.update(path, "latency", measured(None), NEW)
    assert list(page.read(path.read_text()).values()) == [page.Found("too noisy", NEW)]
    assert OLD.commit not in path.read_text()


def test_a_goal_that_differs_from_that_of_the_benchmark_is_refused() -> None:
    with pytest.raises(ValueError, match="latency"):
        page.taken("latency", rows([Figure("latency over two hops, p50", 1.0, "ms", 7.0)]), NEW)


def test_every_program_of_the_page_can_be_run() -> None:
    assert set(QUOTED) <= set(PROGRAMS)
    for each in PROGRAMS.values():
        assert importlib.util.find_spec(f"benchmarks.{each.line.split()[0]}"), each.line


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_left_out_with_little_data_is_quoted(name: str) -> None:
    quoted = [each.figure for each in QUOTED.get(name, ())]
    for pattern in PROGRAMS[name].not_tiny:
        assert any(fnmatchcase(each, pattern) for each in quoted), pattern


def test_every_benchmark_stands_in_the_readme() -> None:
    text = (checkout.ROOT / "benchmarks" / "README.md").read_text()
    named = re.findall(r"`(?:python -m benchmarks\.)?(\w+)", text)
    assert {each.line.split()[0] for each in PROGRAMS.values()} <= {*named}


@pytest.mark.parametrize("name", [f"workload_{each}" for each in "abc"])
@pytest.mark.parametrize("kind", ["", "-columns"])
def test_the_page_has_the_goals_of_the_workloads(name: str, kind: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    goals = (module.columns if kind else module.workload)().goals
    made = [Figure(f"CPU of {each.over} / {each.under}", 1.0, "x", each.value) for each in goals]
    found = page.taken(f"{name}{kind}", rows(made), NEW)
    assert len(found) == len(QUOTED[f"{name}{kind}"])


def test_the_command_line_chooses_programs_and_page() -> None:
    found = summary.options_of(["--page", "--only", "latency", "memory"])
    assert (found.page, found.only) == (page.PAGE, ["latency", "memory"])
    with pytest.raises(SystemExit):
        summary.options_of(["--only", "no-such-program"])


# The checkout that is measured


def test_processes_are_given_the_packages_of_this_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    checkout.enforce()
    assert os.environ["PYTHONPATH"].split(":") == [
        *map(str, checkout.TREES), "/elsewhere",
    ]  # fmt: skip


def test_programs_that_are_compared_are_given_them_too() -> None:
    programs = [*nexmark.contenders("q0").values(), peers.plain("words")]
    for each in programs:
        if isinstance(each, Contender):
            path = each.environment["PYTHONPATH"].split(":")
            assert {*map(str, checkout.TREES)} <= set(path), each.name


def test_another_checkout_is_refused_with_both_folders() -> None:
    with pytest.raises(SystemExit) as refused:
        checkout.refuse_others("It", "/elsewhere/worker/onyx/__init__.py")
    assert "/elsewhere/worker" in str(refused.value)
    assert str(checkout.TREES[0]) in str(refused.value)
    with pytest.raises(SystemExit, match="nowhere"):
        checkout.refuse_others("It", None)
