"""The pages as a site: `make docs`, then open `build/site/index.html`.

The pages stay plain Markdown, which reads well where the code is looked at. So their order stands
here and not in them: `NAVIGATION` says which pages are below which, and each gets its list when it
is read. All Markdown that users read is part of the site, also the examples, so that links hold.

Sphinx with MyST and furo: what it warns of (a link that leads nowhere, a page that no list has)
ends the build, search works without a server, and nothing is loaded from elsewhere. Rejected:
Zensical, which is at its first versions and whose pages are those of one folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

NAVIGATION: dict[str, dict[str, list[str]]] = {
    "docs/index": {
        "Learn": [
            "README",
            "docs/guide/first-job",
            "docs/guide/choosing",
            "docs/guide/coming-from",
            "docs/guide/functions-and-flow-conditions",
            "docs/guide/windows",
            "docs/guide/state-and-event-time",
            "docs/guide/keyed-state",
            "docs/guide/processors",
            "docs/guide/loops",
            "docs/guide/joins",
            "docs/guide/columns",
            "docs/guide/sql-columns",
            "docs/guide/builder",
            "docs/guide/order",
            "docs/guide/waiting",
            "docs/guide/debugging",
            "examples/README",
        ],
        "Read and write": [
            "docs/guide/plugins",
            "docs/guide/files",
            "docs/guide/kafka",
            "docs/guide/queues",
            "docs/guide/requests",
            "docs/guide/http",
            "docs/guide/sql",
            "docs/guide/chaining",
            "docs/guide/programs",
            "docs/guide/spark",
        ],
        "Do": [
            "docs/operations/install",
            "docs/operations/clusters",
            "docs/operations/jobs",
            "docs/operations/processes",
            "docs/operations/operator",
            "docs/operations/data",
            "docs/operations/production",
            "docs/operations/backup",
            "docs/operations/losses",
            "docs/operations/security",
            "SECURITY",
            "docs/operations/events",
            "docs/operations/alerts",
            "docs/guide/operations",
            "docs/guide/monitoring",
            "docs/guide/console",
            "docs/guide/upgrading",
            "docs/guide/redrive",
            "docs/guide/bundles",
            "docs/guide/backfill",
            "charts/onyx/README",
        ],
        "Look up": [
            "docs/glossary",
            "docs/reference/commands",
            "docs/reference/job",
            "docs/reference/cluster",
            "docs/reference/settings",
            "docs/reference/operator-settings",
            "docs/reference/metrics",
            "docs/reference/operator-metrics",
            "docs/reference/events",
            "docs/reference/public-api",
            "docs/guide/limits",
            "docs/figures",
            "docs/compatibility",
            "CHANGELOG",
            "benchmarks/README",
        ],
        "Understand": [
            "docs/architecture",
            "docs/walk",
            "docs/guide/guarantees",
            "docs/guide/reliability",
            "docs/operations/threats",
            "docs/decisions/README",
            "tests/ROBUSTNESS",
            "CONTRIBUTING",
        ],
    },
    "docs/guide/spark": {"": ["docs/guide/spark-*"]},
    "docs/operations/alerts": {"": ["docs/operations/alerts/*"]},
    "docs/reference/job": {
        "": [
            "docs/reference/catalog",
            "docs/reference/flow-conditions",
            "docs/reference/windows",
            "docs/reference/triggers",
            "docs/reference/lifecycles",
            "docs/reference/table-join",
            "docs/reference/join-side",
            "docs/reference/within",
            "docs/reference/spark",
            "docs/reference/upgrade",
            "docs/reference/declaration",
            "docs/reference/types",
        ]
    },
    "docs/decisions/README": {"": ["docs/decisions/0*"]},
    "examples/README": {"": ["examples/*/README"]},
}
"""By page: what is below it, by heading; a heading shows in the list beside each page."""

project = "Onyx on Kubernetes"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "examples/README.md",
    "examples/*/README.md",
    "benchmarks/README.md",
    "charts/onyx/README.md",
    "tests/ROBUSTNESS.md",
]
myst_heading_anchors = 4  # as deep as links of the pages go

html_theme = "furo"
html_title = project
html_baseurl = ""
html_copy_source = False
html_show_sphinx = False
templates_path = ["site"]
html_additional_pages = {"index": "first_page.html"}


def with_navigation(_app: Any, page: str, source: list[str]) -> None:
    """Append to a page the lists of what is below it."""
    lists = [
        "\n".join(
            [
                "```{toctree}",
                ":hidden:",
                ":glob:",
                f":caption: {heading}" if heading else "",
                "",
                *(f"/{each}" for each in pages),
                "```",
            ]
        )
        for heading, pages in NAVIGATION.get(page, {}).items()
    ]
    source[0] = "\n\n".join([source[0], *lists])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", with_navigation)
