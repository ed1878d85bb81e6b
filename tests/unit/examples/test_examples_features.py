"""Every feature has an example: the list of examples is that of the information model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onyx.model import kinds, names, plugins
from onyx.model.keys.kinds import Choice, KeyKind
from onyx.model.keys.section import Section, SectionEntries, SectionEntry
from onyx.model.manifest import OBJECT_SPEC

FOLDER = Path(__file__).parents[3] / "examples"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!`)\|(?!`)", row)[1:-1]]
    for row in (FOLDER / "README.md").read_text().splitlines()
    if row.startswith("|") and not row.startswith(("|-", "| feature"))
]
REFUSED = {"extents"}
"""A word of the original Onyx that jobs may not have."""
LISTED = {word for _, words, _ in ROWS for word in re.findall(r"`([^`]+)`", words)}


def sections(section: Section) -> Iterator[Section]:
    yield section
    for key in section.keys:
        if isinstance(key.kind, SectionEntries | SectionEntry):
            yield from sections(key.kind.section)


def words_of(kind: KeyKind) -> Iterator[str]:
    """The words that a value may be, also those within a list or a mapping."""
    if isinstance(kind, Choice):
        yield from kind.words
    for within in (getattr(kind, "item", None), getattr(kind, "value", None)):
        if within is not None:
            yield from words_of(within)


def features() -> set[str]:
    keys = [key for section in sections(OBJECT_SPEC) for key in section.keys]
    words = {word for key in keys for word in words_of(key.kind)}
    tables = (plugins.NAMES, kinds.AGGREGATIONS, kinds.TRIGGERS, kinds.WINDOWS)
    predicates = (names.COMBINATORS, names.COMPARISONS, names.REFINEMENTS)
    return words.union((key.yaml for key in keys), *tables, *predicates)


def stands_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def test_every_feature_is_listed() -> None:
    missing = sorted(features() - LISTED - REFUSED)
    assert missing == [], "add them to a job of examples/features and to examples/README.md"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_what_is_listed_stands_in_the_examples_of_its_row(row: list[str]) -> None:
    files = [FOLDER / path for path in re.findall(r"\]\(([^)]+)\)", row[2])]
    text = "\n".join(file.read_text() for file in files)
    assert files
    assert [word for word in re.findall(r"`([^`]+)`", row[1]) if not stands_in(word, text)] == []


def test_every_job_of_the_features_is_in_the_list() -> None:
    linked = {path for _, _, links in ROWS for path in re.findall(r"\]\(features/([^)]+)\)", links)}
    files = {each.name for each in (FOLDER / "features").iterdir() if each.is_file()}
    assert files - linked == {"boxes.py", "market.py", "orders.jsonl"}
