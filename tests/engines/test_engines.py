"""Jobs write what DuckDB computes: a few seeds of each world here, thousands by `make engines`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.engines.cases import DIFFERENCES, FORMS, WORLDS, case
from tests.engines.running import difference

SHORT, LONG = 9, 60


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "seed",
    [*range(SHORT), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SHORT, LONG))],
)
def test_a_job_writes_what_the_query_gives(world: str, seed: int, tmp_path: Path) -> None:
    found = difference(case(world, seed), tmp_path)
    assert not found, f"{found}\npython -m tests.engines --world {world} --seed {seed}"


@pytest.mark.parametrize("world", WORLDS)
def test_a_row_more_or_less_is_noticed(world: str, tmp_path: Path) -> None:
    seed = next(n for n in range(SHORT) if n % len(FORMS) == list(WORLDS).index(world) % len(FORMS))
    made = case(world, seed)
    twice = dataclasses.replace(made, query=f"({made.query}) union all ({made.query})")
    none = dataclasses.replace(made, query=f"select * from ({made.query}) where false")
    for number, other in enumerate((twice, none)):
        (folder := tmp_path / str(number)).mkdir()
        assert made.name in difference(other, folder)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_where_the_engines_differ_it_is_by_decision(name: str, tmp_path: Path) -> None:
    differing = DIFFERENCES[name]
    try:
        found = difference(differing.case, tmp_path)
    except AssertionError as error:  # the job has ended
        found = str(error)
    assert differing.said in found
