"""The pages as a site: whole, linked, searchable, and with nothing from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.docs.test_docs_pages import ROOT

pytest.importorskip("sphinx", reason="the site is built with the versions of constraints.txt")
pytestmark = pytest.mark.slow

LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"(https?:)?//[^\"]*")
LOADED_BY_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")
FIRST_PAGE_LINES_MAX = 60


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = ["--fail-on-warning", "--keep-going", "--quiet", "-c", str(ROOT / "docs")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *command, "-b", "html", str(source), str(target)],
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    made = built(ROOT, target)
    assert (made.returncode, made.stderr) == (0, "")
    return target


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    styles = [*site.rglob("*.css")]
    assert len(pages) > 200
    assert styles
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    assert [style.name for style in styles if LOADED_BY_STYLE.search(style.read_text())] == []


def test_search_finds_the_pages_that_readers_need(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    names = found["docnames"]
    for word, page in (("backfil", "guide/backfill"), ("watermark", "guide/state-and-event-time")):
        numbers: list[int] = []
        for each in ("terms", "titleterms"):  # of one page the number, of several a list
            hits = found[each].get(word, [])
            numbers += hits if isinstance(hits, list) else [hits]
        assert f"docs/{page}" in [names[number] for number in numbers]


def test_the_first_page_leads_on(site: Path) -> None:
    assert "docs/index.html" in (site / "index.html").read_text()
    lines = (ROOT / "docs" / "index.md").read_text().splitlines()
    assert len(lines) <= FIRST_PAGE_LINES_MAX
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## Learn", "## Do", "## Look up", "## Understand"]


def test_a_dead_link_and_a_page_that_no_list_has_end_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# First\n\n[nowhere](gone.md)\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    made = built(tmp_path, tmp_path / "out")
    assert made.returncode != 0
    assert "gone.md" in made.stderr
    assert "lost.md: WARNING: document isn't included" in made.stderr
