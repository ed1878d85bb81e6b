"""No key is accepted and does nothing: each is read by something that is not the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import onyx
from onyx.model.keys.key import Key
from onyx.model.manifest import SECTIONS

ROOT = Path(onyx.__file__).parent
CODE = "\n".join(
    path.read_text("utf-8")
    for path in sorted(ROOT.rglob("*.py"))
    if ROOT / "model" not in path.parents
)
FOR_READERS = {"doc", "medium"}
"""They inform whoever reads the job, and their documentation says so."""
KEYS = [(name, key) for name, section in SECTIONS.items() for key in section.keys]


@pytest.mark.parametrize(("section", "key"), KEYS, ids=lambda each: getattr(each, "yaml", each))
def test_a_key_is_read_by_something_outside_of_the_model(section: str, key: Key) -> None:
    if key.field not in FOR_READERS:
        assert re.search(rf"\.{key.field}\b", CODE), f"nothing reads {key.field} of {section}"
