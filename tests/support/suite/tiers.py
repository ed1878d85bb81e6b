"""Two tiers of tests: `short`, which is `make test`, and `rest`, which `make test-all` adds to it.

A test that is marked `slow` is in `rest` only. Of the parameters of one that is marked `short(3)`
three are in `short`, spread evenly, and the others in `rest`: a worker that dies at each of forty
steps is one promise. Properties are in both: with few examples in `short`, with five times
as many in `rest`. Everything else is in `short` only. Without a tier
(`pytest tests/unit/flow`) all tests that are named run, with all examples. CONTRIBUTING.md has a
table of what each tier promises.

Rejected: a folder for each tier. Tests about one thing would lie in two places, and a test that
becomes cheaper would move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

TIERS = ("short", "rest")
EXAMPLES = {"short": 10, "rest": 50, "full": 100}
"""Examples of a property that asks for no number of its own, by profile of Hypothesis: that of a
tier, and `full` without one; others follow in proportion (`tests.support.examples`). Those of
`short` are the same in each run: what fails there has been broken by a change. Those of `rest` are
others each time."""


def tier_of(config: pytest.Config) -> str | None:
    """The tier that this run is for; None: whatever is named."""
    chosen: str | None = config.getoption("tier")
    return chosen


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onyx")
    group.addoption("--tier", choices=TIERS, help="run the tests of this tier (CONTRIBUTING.md)")


def pytest_configure(config: pytest.Config) -> None:
    for profile, examples in EXAMPLES.items():
        hypothesis.settings.register_profile(
            profile, deadline=None, max_examples=examples, derandomize=profile == "short"
        )
    if tier_of(config) == "short":
        # Hypothesis tries constants of all modules that are imported, and a second is spent on
        # looking for them in each process. What it tries would follow from what else runs there.
        providers._get_local_constants = lambda: providers._local_constants
    # Before tests are collected: each of them takes the number that holds when it is imported.
    if not config.getoption("hypothesis_profile"):
        hypothesis.settings.load_profile(tier_of(config) or "full")


def pytest_report_header(config: pytest.Config) -> str:
    return f"tier: {tier_of(config) or 'none, so all tests that are named'}"


@pytest.hookimpl(trylast=True)  # when Hypothesis has marked its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = tier_of(config)
    if tier is None:
        return
    slow = _slow(items)
    others = [item for item in items if not _belongs(item, tier, item in slow)]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]


def _slow(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """What is marked `slow`, and of each test that is marked `short` all but so many parameters."""
    slow = {item for item in items if item.get_closest_marker("slow")}
    parameters: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("short") and item not in slow:
            parameters[item.nodeid.partition("[")[0]].append(item)
    for each in parameters.values():
        (mark,) = each[0].iter_markers("short")
        kept = {number * len(each) // mark.args[0] for number in range(mark.args[0])}
        slow |= {item for number, item in enumerate(each) if number not in kept}
    return slow


def _belongs(item: pytest.Item, tier: str, slow: bool) -> bool:
    if tier == "short":
        return not slow
    return slow or item.get_closest_marker("hypothesis") is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped, and why: 178 lines are read by nobody."""
    reasons = Counter(_reason(each) for each in terminalreporter.stats.get("skipped", []))
    if reasons:
        each = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        terminalreporter.line(f"skipped {reasons.total()} tests: {each}")


def _reason(report: pytest.TestReport) -> str:
    place_and_reason = report.longrepr
    assert isinstance(place_and_reason, tuple)
    return str(place_and_reason[2]).removeprefix("Skipped: ")
