"""The original's window cases with windows by Spark; stages are carried out by Python here."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.on_spark.spark_windows import difference
from tests.conformance.on_spark.table import surprises
from tests.conformance.on_spark.windows import window_cases

from onyx.errors import ManifestError


def test_windows_by_spark_hold_at_the_end_what_windows_of_peers_hold(tmp_path: Path) -> None:
    found: dict[str, str | None] = {}
    for number, (name, case) in enumerate(window_cases().items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            found[name] = difference(case, folder)
        except ManifestError as error:
            found[name] = None if "threw" in case["expected"] else str(error)
    assert surprises("by_spark", found) == []
    assert len(found) == 81
