"""Contract of an API server with our own CRDs: it takes them.

Only a real server knows whether a schema is structural and whether its rules stay within the cost
that it allows; the fake repeats the structure's part.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.operator.contract.client import APPLY, CRDS, Client

FILES = sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_our_crds_are_taken_as_they_are(server: Client, file: Path) -> None:
    crd = yaml.safe_load(file.read_text())
    name = crd["metadata"]["name"]
    query = {"dryRun": "All", "fieldManager": "contract", "fieldValidation": "Strict"}
    answer = server.call("PATCH", f"{CRDS}/{name}", crd, {**query, "force": "true"}, APPLY)

    assert answer.code in (200, 201), answer.body
    assert answer.body["spec"]["names"]["kind"] == crd["spec"]["names"]["kind"]
