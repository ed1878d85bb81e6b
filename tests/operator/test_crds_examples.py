"""Every job and cluster that we show is taken by an API server with our definitions as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.fake_api.server import FakeApi

ROOT = Path(__file__).parents[2]
KINDS = ("OnyxJob", "OnyxCluster")
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def shown() -> list[Any]:
    texts = [
        (str(path.relative_to(ROOT)), path.read_text())
        for path in sorted(ROOT.glob("examples/*/*.yaml"))
    ]
    texts += [
        (f"{page.relative_to(ROOT)}-{number}", block)
        for page in PAGES
        for number, block in enumerate(BLOCK.findall(page.read_text()))
    ]
    read = [(name, yaml.safe_load(text)) for name, text in texts]
    return [
        pytest.param(body, id=name)
        for name, body in read
        if isinstance(body, dict) and body.get("kind") in KINDS
    ]


@pytest.mark.parametrize("body", shown())
def test_what_we_show_is_taken_as_it_is(api: FakeApi, body: dict[str, Any]) -> None:
    made = api.create(body)

    for key, value in body["spec"].items():
        assert key in made["spec"], f"{key} was pruned"
        if not isinstance(value, dict | list):
            assert made["spec"][key] == value
