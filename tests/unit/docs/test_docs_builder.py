"""The first job of the README is the same in both of its forms, and the README is short."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from onyx.builder import Job
from onyx.model.parsing.job import parse_manifest

ROOT = Path(__file__).parents[3]


def test_the_first_job_is_the_same_in_yaml_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (ROOT / "README.md").read_text().split("## A job of your own")[1].split("\n## ")[0]
    (function,) = re.findall(r"```python\n(.*?)```", first, re.DOTALL)
    guide = (ROOT / "docs/guide/builder.md").read_text()
    program = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
    assert function in program
    (manifest,) = re.findall(r"```yaml\n(.*?)```", first, re.DOTALL)
    (tmp_path / "ages.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ages", raising=False)
    job = importlib.import_module("ages").job
    assert isinstance(job, Job)
    assert len(manifest.splitlines()) == 5
    name = "ages.yaml"
    assert job.build() == Job.from_yaml(manifest, name).build() == parse_manifest(manifest, name)
    monkeypatch.delitem(sys.modules, "ages")


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 900
