"""What the documents say is true: jobs are valid, links lead somewhere, Python is Python."""

from __future__ import annotations

import re
import runpy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from onyx.model import plugins
from onyx.model.kinds import AGGREGATIONS, TRIGGERS
from onyx.model.names import REFINEMENTS
from onyx.model.parsing.cluster import parse_cluster_manifest
from onyx.model.parsing.job import parse_manifest, parse_mapping
from onyx.submission.job_checks import wrong_options, wrong_sql

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "": "*.md",
    "docs": "**/*.md",
    "examples": "**/*.md",
    "benchmarks": "*.md",
    "charts": "*/*.md",
    "tests": "*.md",
}
PAGES = sorted(
    page for folder, pattern in FOLDERS.items() for page in (ROOT / folder).glob(pattern)
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(text, id=f"{name(page)}-{number}")
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()))
        if found == language
    ]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def ways_of(condition: dict[str, Any]) -> list[tuple[str, str]]:
    """The edges that a condition asks for; of one that names no children, some."""
    sources, to = condition["from"], condition["to"]
    children = ["sink"] if isinstance(to, str) else to
    return [
        (source, child)
        for source in ([sources] if isinstance(sources, str) else sources)
        for child in children
    ]


def job_around(part: dict[str, Any]) -> dict[str, Any]:
    """A whole job around a part of one: other tasks are put before, behind and between."""
    catalog = {entry["name"]: entry for entry in part.get("catalog", ())}
    conditions = part.get("flowConditions", [])
    windows, triggers = windows_around(part)
    sources = [each for each, entry in catalog.items() if entry["type"] == "input"] or ["source"]
    tables = {each for each, entry in catalog.items() if entry["type"] == "table"}
    ends = [each for each in catalog if each not in (*sources, *tables)] or ["sink"]
    ways = {way for each in conditions for way in ways_of(each)}
    called = {each for each in ends if catalog.get(each, {}).get("type") == "function"}
    ways |= {(each, "sink") for each in called if tables}
    ways |= {(each["task"], "sink") for each in windows if each["task"] not in ends}
    functions = sorted({parent for parent, _ in ways} - {*ends})
    edges = [(source, each) for source in sources for each in [*functions, *ends]] + sorted(ways)
    for task in sorted({task for edge in edges for task in edge} - catalog.keys()):
        kind = "input" if task in sources else "function" if task in functions else "output"
        does = {"fn": "any:function"} if kind == "function" else {"plugin": "channel"}
        catalog[task] = {"name": task, "type": kind, "batchSize": 1, **does}
    spec: dict[str, Any] = {"workflow": [list(edge) for edge in edges]}
    spec |= {"catalog": list(catalog.values()), "flowConditions": conditions}
    if windows:
        spec |= {"windows": windows, "triggers": triggers, "guarantee": "exactly-once"}
    header = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "part"}}
    return {**header, "spec": spec}


def windows_around(part: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Windows and triggers of a part; a window of which only the triggers are there is added."""
    windows, triggers = part.get("windows", []), part.get("triggers", [])
    missing = {each["windowId"] for each in triggers} - {each["id"] for each in windows}
    shape = {"task": "work", "type": "fixed", "aggregation": "count"}
    shape |= {"windowKey": "time", "range": [1, "hour"]}
    return [*windows, *({"id": each, **shape} for each in sorted(missing))], triggers


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_cluster_or_job_or_part_of_one_is_valid_and_can_run(text: str) -> None:
    plain = yaml.safe_load(text)
    if plain.get("kind") == "OnyxCluster":
        parse_cluster_manifest(text, "page")
        return
    if "spec" in plain:
        job = parse_manifest(text, "page.yaml")
        assert (*wrong_options(job), *wrong_sql(job)) == ()
    else:
        assert plain.keys() <= {"catalog", "flowConditions", "windows", "triggers"}
        parse_mapping(job_around(plain))


@pytest.mark.parametrize("text", blocks("python"))
def test_python_is_python(text: str) -> None:
    compile(text, "page", "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}"


def test_every_page_is_within_reach_of_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text()))
        waiting += [(page.parent / each).resolve() for each in links if each and "://" not in each]

    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_page_of_the_site_is_in_a_list() -> None:
    """What Sphinx says of a lost page, without a build."""
    site = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    listed = [
        each for lists in site["NAVIGATION"].values() for pages in lists.values() for each in pages
    ]
    pages = {
        page.relative_to(ROOT)
        for pattern in site["include_patterns"]
        for page in ROOT.glob(f"{pattern}/*.md" if pattern.endswith("**") else pattern)
    } - {Path(f"{site['root_doc']}.md")}
    names = [page.with_suffix("").as_posix() for page in sorted(pages)]
    assert [each for each in names if not any(fnmatch(each, pattern) for pattern in listed)] == []


def test_every_plugin_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide" / "plugins.md").read_text()
    for plugin in plugins.NAMES:
        assert f"| `{plugin}` |" in guide


def test_every_aggregation_trigger_and_refinement_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide" / "windows.md").read_text()
    for word in (*AGGREGATIONS, *TRIGGERS, *REFINEMENTS):
        assert re.search(rf"`[^`]*\b{word}\b", guide), word
