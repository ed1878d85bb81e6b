"""Several job files of one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.cli.job_file import read_jobs
from onyx.errors import ManifestError

JOB = """
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: NAME}
spec:
  workflow: [[read, write]]
  catalog:
    - {name: read, type: input, plugin: files, options: {path: in.csv}}
    - {name: write, type: output, plugin: files, options: {path: out}}
"""


def a_file(folder: Path, name: str, text: str = JOB) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text.replace("NAME", name))
    return path


def test_jobs_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    paths = [a_file(tmp_path, name) for name in ("second", "first")]
    assert [job.name for job in read_jobs(paths)] == ["second", "first"]


def test_the_problems_of_all_files_are_reported_with_their_files(tmp_path: Path) -> None:
    paths = [
        a_file(tmp_path, "fine"),
        a_file(tmp_path, "empty", ""),
        a_file(tmp_path, "typo", JOB.replace("plugin: files", "plugin: fils")),
        tmp_path / "nowhere.yaml",
    ]
    with pytest.raises(ManifestError) as found:
        read_jobs(paths)
    text = str(found.value)
    assert [name in text for name in ("fine", "empty", "typo", "nowhere")] == [False, *[True] * 3]
