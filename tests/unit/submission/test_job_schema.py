"""What an editor is told about a job file: no valid one is marked, and slips are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from onyx.submission.job_schema import job_schema

ROOT = Path(__file__).parents[3]
SCHEMA = job_schema()


def problems(job: Any) -> list[str]:
    plain = json.loads(json.dumps(job, default=str))
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(plain)
    return [f"{error.json_path}: {error.message}" for error in found]


def jobs_of_the_examples() -> Iterator[Any]:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        for number, job in enumerate(yaml.safe_load_all(path.read_text())):
            if isinstance(job, dict) and "spec" in job and job.get("kind", "OnyxJob") == "OnyxJob":
                yield pytest.param(job, id=f"{path.relative_to(ROOT)}-{number}")


def with_entry(**entry: Any) -> dict[str, Any]:
    return {"spec": {"catalog": [{"name": "read", "plugin": "files", **entry}]}}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert "x-kubernetes" not in json.dumps(SCHEMA)


@pytest.mark.parametrize("job", [*jobs_of_the_examples()])
def test_no_example_is_marked(job: Any) -> None:
    assert problems(job) == []


@pytest.mark.parametrize(
    ("job", "where"),
    [
        ({}, "$: 'spec' is a required property"),
        ({"spec": {}, "extra": 1}, "$: Additional properties"),
        ({"spec": {"catalogue": []}}, "$.spec: Additional properties"),
        (with_entry(batchsize=3), "$.spec.catalog[0]: Additional properties"),
        (with_entry(batchSize=0), "$.spec.catalog[0].batchSize: 0 is less than"),
        (with_entry(options={"path": 3}), "$.spec.catalog[0].options.path: 3 is not"),
    ],
)
def test_a_slip_is_marked_where_it_is(job: Any, where: str) -> None:
    (found,) = problems(job)
    assert found.startswith(where)


def test_options_of_a_function_beside_those_of_a_plugin_are_taken() -> None:
    entry = with_entry(fn="a:b", params=["year"], options={"path": "x", "year": 2013})
    assert problems(entry) == []
