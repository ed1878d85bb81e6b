"""A key without an effect causes a warning, wherever a job is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onyx.cli import app
from onyx.model.notices import notices
from onyx.model.parsing.job import parse_mapping
from onyx_operator.admission.validators import judge

NOTICE = "spec.catalog[1].medium: is for readers of the job only"


def job(**more: Any) -> dict[str, Any]:
    catalog = [
        {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 10},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10, **more},
    ]
    catalog[0]["options"] = {"segments": [{"n": 1}]}
    spec = {"workflow": [["read", "write"]], "catalog": catalog}
    head = {"apiVersion": "onyx.dev/v1alpha1", "kind": "OnyxJob", "metadata": {"name": "job"}}
    return {**head, "spec": spec}


def test_a_medium_is_warned_of_at_its_place() -> None:
    (found,) = notices(parse_mapping(job(medium="kafka")))
    assert str(found).startswith(NOTICE)
    assert notices(parse_mapping(job())) == ()


def test_the_webhook_warns_and_accepts() -> None:
    verdict = judge("OnyxJob", job(medium="kafka"), None)
    assert verdict.problems == ()
    assert [str(each).startswith(NOTICE) for each in verdict.warnings] == [True]


@pytest.mark.parametrize("as_json", [False, True])
def test_validate_warns_and_accepts(tmp_path: Path, as_json: bool) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job(medium="kafka")))
    found = CliRunner().invoke(app, ["validate", str(file), *(["--json"] if as_json else [])])
    assert found.exit_code == 0
    if as_json:
        (warning,) = json.loads(found.stdout)["warnings"]
        assert warning["path"] == "spec.catalog[1].medium"
    else:
        assert f"warning: {NOTICE}" in found.stderr
