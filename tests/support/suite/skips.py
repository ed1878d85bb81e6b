"""Says in one line what was skipped, and why: 178 lines are read by nobody."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_reason(each) for each in terminalreporter.stats.get("skipped", []))
    if reasons:
        each = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        terminalreporter.line(f"skipped {reasons.total()} tests: {each}")


def _reason(report: pytest.TestReport) -> str:
    place_and_reason = report.longrepr
    assert isinstance(place_and_reason, tuple)
    return str(place_and_reason[2]).removeprefix("Skipped: ")
