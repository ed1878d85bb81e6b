"""The glossary says of each word where the code has it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text()


def test_each_word_of_the_glossary_is_where_it_says() -> None:
    rows = re.findall(r"^\| \*\*.* \|$", PAGE, re.MULTILINE)
    places = [re.findall(r"\| `([\w/]+):(\w+)` \|$", row) for row in rows]

    assert len(rows) >= 40
    assert [row for row, found in zip(rows, places, strict=True) if not found] == []
    for ((module, name),) in places:
        found = importlib.import_module(f"onyx.{module.replace('/', '.')}")
        assert hasattr(found, name), f"{module}:{name}"
