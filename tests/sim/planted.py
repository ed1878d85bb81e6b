"""Which tests find the planted bugs, besides the simulations: `python -m tests.sim.planted`.

Tests are collected once. For each bug a fork of this process plants it and runs tests until one
fails: first those of files that name what is patched, then those that import from the same package.
A test counts as a finder if it passes without the bug. What stands in a file of tests or of the
product by `from ... import` is patched where the simulation patches it, and nowhere else.

    python -m tests.sim.planted                 all bugs, by tests/unit and then tests/property
    python -m tests.sim.planted --bug K4 --paths tests/integration/jobs
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import time
from inspect import isclass
from pathlib import Path
from typing import Any

import pytest
from tests.sim.planting import planted_of
from tests.sim.worlds import WORLD_OF, WORLDS

BUDGET_S = 20
"""CPU time that the tests of a folder get for a bug, at most."""
PATHS = ("tests/unit", "tests/property")
OPTIONS = (
    *("-q", "--capture=no", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-m", "not server", "--tier=short"),
)
"""As `make test` runs them; with servers forks of a process would share connections."""


class Finders:
    """Runs tests under each bug in place of pytest's own loop."""

    def __init__(self, bugs: list[str], paths: list[str]) -> None:
        self._bugs, self._paths = bugs, paths
        self.found: dict[str, tuple[str, float]] = {}
        """By bug: the test that finds it, or nothing, and the CPU time of the search."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for bug in self._bugs:
            finder, took_s = "", 0.0
            for path in self._paths:
                items = _ranked(bug, path, session.items)
                finder, its_s = _run(bug, items)
                took_s += its_s
                if finder:
                    break
            self.found[bug] = finder, took_s
            print(f"{bug}: {finder or 'nobody'} ({took_s:.1f} CPU s)", flush=True)
        return True


def _ranked(bug: str, path: str, items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of a folder that may find a bug, the likeliest first."""
    where, name, _ = WORLDS[WORLD_OF[bug]].plants[bug]
    module = where.__module__ if isclass(where) else where.__name__
    package = module.split(".")[1]
    thing = where.__name__.rsplit(".")[-1]
    likely = (
        re.compile(rf"\b{re.escape(module)}\b"),
        re.compile(rf"\b({thing}|{name.strip('_')})\b"),
        re.compile(rf"\bonyx\.{package}\b|{package}\w*\.py"),
    )
    ranks: dict[Path, int] = {}
    for item in items:
        if item.path not in ranks:
            text = f"{item.path.name}\n{item.path.read_text()}"
            found = [bool(each.search(text)) for each in likely]
            ranks[item.path] = found.index(True) if any(found) else len(likely)
    mine = [
        item for item in items if item.nodeid.startswith(path) and ranks[item.path] < len(likely)
    ]
    return sorted(mine, key=lambda item: ranks[item.path])


def _run(bug: str, items: list[pytest.Item]) -> tuple[str, float]:
    """The first test that fails with a bug and passes without it; and the CPU time."""
    began_s = _children_s()
    while items:
        failed = _first_failed(bug, items)
        if failed is None:
            break
        if _first_failed(None, [items[failed]]) is None:
            return items[failed].nodeid, _children_s() - began_s
        items = items[failed + 1 :]
    return "", _children_s() - began_s


def _first_failed(bug: str | None, items: list[pytest.Item]) -> int | None:
    """Runs tests in a fork until one fails; which one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(bug, items, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    # A child that says nothing has died or has had its time.
    return json.loads(answer) if answer else None


def _in_child(bug: str | None, items: list[pytest.Item], answers: int) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (BUDGET_S, BUDGET_S))
    session: Any = items[0].session
    plants = {} if bug is None else WORLDS[WORLD_OF[bug]].plants
    with planted_of(plants, bug):
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else None
            before = session.testsfailed
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed > before:
                os.write(answers, json.dumps(number).encode())
                break
    os._exit(0)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.planted", description=__doc__)
    parser.add_argument("--bug", nargs="*", choices=WORLD_OF, default=list(WORLD_OF))
    parser.add_argument("--paths", nargs="*", default=PATHS, help="of tests, the cheapest first")
    args = parser.parse_args()
    finders = Finders(args.bug, args.paths)
    began_s = time.process_time()
    code = pytest.main([*OPTIONS, *args.paths], plugins=[finders])
    alone = [bug for bug, (finder, _) in finders.found.items() if not finder]
    took_s = time.process_time() - began_s + _children_s()
    print(f"{len(finders.found)} bugs in {took_s:.0f} CPU s; found by none of these: {alone}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
