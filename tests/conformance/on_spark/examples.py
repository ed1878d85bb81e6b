"""All examples, over small inputs that lie where they are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onyx.model.functions import function_names
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.job import parse_manifest

FOLDER = Path(__file__).parents[3] / "examples"
FLIGHTS, EVENTS = 3_000, 12_000
"""The first flights of the year, and events of 1.2 seconds."""
OF_ONE_RUN = ("job", "task", "time", "id", "origin")
OF_PEERS = "features"
"""Jobs that show a key each, most of them about peers: they are tested by themselves."""
ON_BOTH = ("loop.yaml", "partitioned.yaml", "processors.yaml", "streams.yaml")
"""Those of them that are about either engine."""


def importable(patch: pytest.MonkeyPatch) -> None:
    """Let functions of the examples be found, here and by Spark's Python workers."""
    for folder in sorted({path.parent for path in FOLDER.glob("*/*.yaml")}):
        patch.syspath_prepend(str(folder))


def examples(data: Path) -> dict[str, Job]:
    """The jobs by their files, which read data that is made in a folder."""
    import_module("generate").generate(data / "nexmark/data", EVENTS)
    prepare: Any = import_module("prepare")
    records = [*islice(prepare.raw(), FLIGHTS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "raw", lambda: iter(records))
        prepare.prepare(data / "flights/data")
    return {
        f"{path.parent.name}/{path.name}": _reading(
            parse_manifest(path.read_text("utf-8"), str(path)), path.parent, data
        )
        for path in sorted(FOLDER.glob("*/*.yaml"))
        if path.parent.name != OF_PEERS or path.name in ON_BOTH
    }


def modules(jobs: Mapping[str, Job]) -> tuple[str, ...]:
    """Whose functions they name."""
    named = {name for job in jobs.values() for _, name in function_names(job)}
    options = {
        entry.options["fn"]
        for job in jobs.values()
        for entry in job.catalog
        if "fn" in entry.options
    }
    return tuple(sorted({each.partition(":")[0] for each in named | options}))


def comparable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what a dead letter says of its run."""
    return [
        {key: row[key] for key in row if key not in OF_ONE_RUN} if "error" in row else row
        for row in rows
    ]


def _reading(job: Job, folder: Path, data: Path) -> Job:
    def read(entry: CatalogEntry) -> CatalogEntry:
        if entry.type not in ("input", "table") or entry.plugin != "files":
            return entry
        path = Path(entry.options["path"])
        found = (data if path.parts[0] == "data" else folder.parent) / folder.name / path
        return replace(entry, options={**entry.options, "path": str(found)})

    return replace(job, catalog=tuple(map(read, job.catalog)))
