"""The functions of the guide page about columns, called as Onyx calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.docs.test_docs_pages import BLOCK, ROOT

from onyx.flow.batch import as_dicts
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.leaves import apply_to_columns

PAGE = (ROOT / "docs" / "guide" / "columns.md").read_text()
TRIPS = [
    {"id": 1, "km": 30.0, "hours": 0.5, "stops": ["a", "b"]},
    {"id": 2, "km": 4.0, "hours": 1.0, "stops": []},
    {"id": 3, "km": 12.0, "hours": 2.0, "stops": ["c"]},
]


@pytest.fixture(scope="module")
def functions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Any] = {}
    for language, text in BLOCK.findall(PAGE):
        if language == "python":
            exec(compile(text, "columns.md", "exec", dont_inherit=True), found)
    return found


@pytest.mark.parametrize(
    ("name", "params", "key", "values", "parents"),
    [
        ("longer", (10,), "id", [1, 3], [0, 2]),
        ("with_speed", (), "speed", [60.0, 4.0, 6.0], None),
        ("stops", (), "stop", ["a", "b", "c"], [0, 0, 2]),
        ("by_query", (), "speed", [60.0, 6.0], [0, 2]),
    ],
)
def test_the_functions_of_the_page_do_what_it_says(functions, name, params, key, values, parents):
    leaves = apply_to_columns(functions[name], params, from_dicts(TRIPS)[0])
    assert leaves.failures == []
    assert [row[key] for row in as_dicts(leaves.segments)] == values
    assert (None if leaves.parents is None else leaves.parents.tolist()) == parents
    assert all("__row__" not in row for row in as_dicts(leaves.segments))


def test_the_predicate_of_the_page_answers_for_each_row(functions):
    rows = from_dicts(TRIPS)[0].record_batch
    assert functions["far_off"]({}, rows, 0.9).to_pylist() == [True, False, False]
