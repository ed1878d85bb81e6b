"""What tests cost, in CPU seconds, and that no layer costs more than its budget.

Each test counts with the processes that it starts: what the process of pytest has used, what its
children have that have ended, and what those have used so far that still run. CPU and not time,
because tests with servers wait; and because other work on the machine adds little to CPU and much
to time. `tests/budget.toml` has the budget of each layer, which is the folder below `tests/`, in
seconds of one machine. Another machine is measured by a loop that took `loop_s` there.

A run for a whole tier fails if a layer costs 30 % more than its budget, so that the suite cannot
become slow a test at a time. Every run prints the ten dearest files.

Rejected: a budget a test (a new one would need a number before it is written), and wall time (two
tests at once share it).
"""

from __future__ import annotations

import os
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.spark import lent_jvms
from tests.support.suite.tiers import tier_of

BUDGET = Path(__file__).parents[2] / "budget.toml"
OVER_MAX = 1.3
"""How much of its budget a layer may use: what a test costs varies from run to run."""
DEAREST_FILES = 10
SUITE = "suite"
"""The layer of what no test does: each process of pytest imports and collects all tests, and ends
what they have shared."""
SHOWN_FROM_S = 5.0
"""A developer who runs a few tests is not interested in what they cost."""
_KEY = "cpu_s"
_LOOP_RUNS = 5


class Meter:
    """CPU seconds of this process and of all that it has started."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._running_s = 0.0
        self._ended_s = 0.0
        self._counted_s = 0.0

    def used_s(self, looks_at_running: bool) -> float:
        """Seconds since the last call.

        Args:
            looks_at_running: whether those count that processes have used so far which still run;
                finding these takes 5 ms. Others count when one has ended: it would count twice.
        """
        ended_s = sum(os.times()[2:4])
        if looks_at_running or ended_s != self._ended_s:
            self._running_s = sum(map(_used_s, self._process.children(recursive=True)))
            self._running_s += lent_jvms.used_s()
        self._ended_s = ended_s
        used_s = time.process_time() + ended_s + self._running_s
        since_s, self._counted_s = used_s - self._counted_s, used_s
        return since_s


def _used_s(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.Error:
        return 0.0  # it has ended since, and counts with its parent


class Costs:
    """What the tests cost that the run has seen, by file; and what no test did."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.suite_s = 0.0
        self.problems: list[str] = []

    def layers(self) -> dict[str, float]:
        """CPU seconds of each layer."""
        found: Counter[str] = Counter({SUITE: self.suite_s})
        for file, cost_s in self.files.items():
            found[layer_of(file)] += cost_s
        return dict(found)


def layer_of(file: str) -> str:
    """The folder below `tests/` of a file."""
    return Path(file).parts[1]


def problems(layers: dict[str, float], budget: dict[str, float], slowness: float) -> list[str]:
    """What is beyond the budget, or has none.

    Args:
        layers: CPU seconds of each.
        budget: CPU seconds that each may take on the machine of the budget.
        slowness: how much longer this machine takes than that one.
    """
    found = []
    for layer, cost_s in sorted(layers.items()):
        if layer not in budget:
            found.append(f"{layer} has no budget in {BUDGET.name}")
            continue
        allowed_s = budget[layer] * slowness * OVER_MAX
        if cost_s > allowed_s:
            found.append(
                f"{layer} took {cost_s:.0f} CPU s, {BUDGET.name} allows {allowed_s:.0f} here "
                f"({budget[layer]:.0f} x {slowness:.2f} for this machine x {OVER_MAX}): make its "
                "dearest files cheaper, mark tests `slow`, or raise the budget and say why"
            )
    return found


def loop_s() -> float:
    """What a loop takes that uses what tests use: objects, dicts, text. The least of some runs,
    because other processes disturb each."""
    return min(_one_loop_s() for _ in range(_LOOP_RUNS))


def _one_loop_s() -> float:
    began_s = time.process_time()
    rows = [{"key": str(number % 97), "value": number} for number in range(100_000)]
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(str(row["key"]), []).append(hash((row["key"], row["value"])))
    assert sum(map(len, groups.values())) == len(rows)
    return time.process_time() - began_s


class CostsPlugin:
    """Measures in each process that runs tests, and adds up in the one that talks to people."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._costs = Costs()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        self._costs.suite_s += self._meter.used_s(looks_at_running=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report: pytest.TestReport = yield
        starts_processes = item.get_closest_marker("server") is not None
        cost_s = self._meter.used_s(looks_at_running=starts_processes and report.when == "teardown")
        report.user_properties = [*report.user_properties, (_KEY, cost_s)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, _, _ = report.nodeid.partition("::")  # where it stands; it may be written elsewhere
        self._costs.files[file] += sum(
            cost_s for key, cost_s in report.user_properties if key == _KEY
        )

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_testnodedown(self, node: Any) -> None:
        self._costs.suite_s += getattr(node, "workeroutput", {}).get(_KEY, 0.0)

    @pytest.hookimpl(trylast=True)  # when what tests share has been ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        costs, config = self._costs, session.config
        has_workers = bool(config.getoption("numprocesses", None)) and not _is_worker(config)
        if not has_workers:  # they have counted all but what this process does itself
            costs.suite_s += self._meter.used_s(looks_at_running=True)
        if _is_worker(config):
            config.workeroutput[_KEY] = costs.suite_s
        elif session.exitstatus == pytest.ExitCode.OK and _is_whole_tier(config):
            costs.problems = problems(costs.layers(), *_budget(config))
            if costs.problems:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        layers = self._costs.layers()
        if sum(layers.values()) < SHOWN_FROM_S:
            return
        terminalreporter.section("CPU seconds")
        each = ", ".join(f"{layer} {cost_s:.0f}" for layer, cost_s in sorted(layers.items()))
        terminalreporter.line(f"{sum(layers.values()):.0f} in all: {each}")
        for file, cost_s in self._costs.files.most_common(DEAREST_FILES):
            terminalreporter.line(f"{cost_s:7.1f}  {file}")
        for problem in self._costs.problems:
            terminalreporter.line(f"BEYOND THE BUDGET: {problem}", red=True)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _is_whole_tier(config: pytest.Config) -> bool:
    """Whether all tests of a tier were asked for."""
    option = config.option
    chosen = option.markexpr or option.keyword or config.getoption("lf", False)
    by_default = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return tier_of(config) is not None and by_default and not chosen


def _budget(config: pytest.Config) -> tuple[dict[str, float], float]:
    """Seconds of each layer in the tier of this run, and how slow this machine is."""
    budget = tomllib.loads(BUDGET.read_text())
    return budget[tier_of(config)], loop_s() / budget["machine"]["loop_s"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CostsPlugin(), "onyx-costs")
