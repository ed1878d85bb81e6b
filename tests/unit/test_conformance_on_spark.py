"""The table of what Spark does otherwise holds what was found, no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.on_spark import table

LISTED = """
section:
  known: {reason: as it is, expect: of a timer}
"""


@pytest.mark.parametrize(
    ("found", "surprise"),
    [
        ({"known": "because of a timer", "other": None}, []),
        ({"known": None}, ["known: is listed, but agrees"]),
        ({"known": "2 rows"}, ["known: is listed for another reason than 2 rows"]),
        ({"known": "of a timer", "other": "2 rows"}, ["other: 2 rows"]),
        ({}, ["known: is listed, but was not tried"]),
    ],
)
def test_what_the_table_does_not_say_is_a_surprise(
    found: dict[str, str | None], surprise: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "differs.yaml").write_text(LISTED)
    monkeypatch.setattr(table, "TABLE", tmp_path / "differs.yaml")
    assert table.surprises("section", found) == surprise
