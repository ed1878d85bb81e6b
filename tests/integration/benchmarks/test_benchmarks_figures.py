"""Every benchmark, in its smallest form, ends and has the figures that its table says.

Their values say nothing here: start-up is in them, and the machine is busy. That they are there
says that jobs, functions, programs and options still fit each other.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from benchmarks import page
from benchmarks.figures import Size
from benchmarks.programs import PROGRAMS
from benchmarks.quoted import QUOTED

pytestmark = pytest.mark.server


def cases() -> Iterator[Any]:
    """Programs, and what no test runs of them, with the reason."""
    for name, program in PROGRAMS.items():
        marks = [pytest.mark.slow] if program.slow else []
        if program.elsewhere:
            marks.append(pytest.mark.skip(f"benchmark {name}: {program.elsewhere}"))
        yield pytest.param(name, marks=marks)
        for pattern, why in program.not_tiny.items():
            reason = f"figures {pattern.strip('*/ ')!r} of {name}: {why}"
            yield pytest.param(name, id=f"{name}: {pattern}", marks=pytest.mark.skip(reason))


MAY_SHRINK = "growth"
"""Memory may be given back, and files may go."""


@pytest.mark.parametrize("name", list(cases()))
@pytest.mark.usefixtures("warm_starts")
def test_a_benchmark_has_its_figures(name: str, tmp_path: Path) -> None:
    program, path = PROGRAMS[name], tmp_path / "figures.json"

    importlib.import_module(program.module).main(
        [*program.arguments, "--tiny", "--json", str(path)]
    )

    found: list[dict[str, Any]] = json.loads(path.read_text())["figures"]
    wanted = [*(each.figure for each in QUOTED.get(name, ())), *program.figures]
    names = [each["name"] for each in found]
    missing = [each for each in wanted if not any(fnmatchcase(name, each) for name in names)]
    left_out = [each for each in program.not_tiny if any(fnmatchcase(one, each) for one in wanted)]
    assert all(any(fnmatchcase(each, one) for one in left_out) for each in missing), missing
    assert {each["name"]: each["value"] for each in found if not _is_number(each)} == {}
    page.taken(name, found, page.this_run(Size.TINY))  # goals are those of the page


def _is_number(figure: dict[str, Any]) -> bool:
    value = figure["value"]
    if value is None or not math.isfinite(value):
        return False
    return value > 0 or MAY_SHRINK in figure["name"]
