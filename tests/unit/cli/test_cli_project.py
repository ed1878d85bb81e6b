"""What `onyx init` writes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.cli.command_table import run_command
from onyx.cli.commands.init import Kind, module_name, project
from onyx.errors import UserError
from onyx.model.names import as_job_name, is_function, is_job_name
from onyx.model.parsing.job import parse_manifest
from onyx.submission.job_checks import wrong_options


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_file_has_its_names_and_the_job_is_valid(kind: str) -> None:
    files = project(kind, "my-ages")
    assert {"my_ages.py", "test_my_ages.py", "job.yaml", "README.md"} <= files.keys()
    job = parse_manifest(files["job.yaml"])
    assert (job.name, wrong_options(job)) == ("my-ages", ())
    for name, text in files.items():
        assert not {"NAME", "MODULE"} & {*text.split()}, name
        assert text.endswith("\n")
        if name.endswith(".py"):
            compile(text, name, "exec")


@given(st.text(max_size=80))
def test_any_folder_gives_a_name_that_jobs_may_have_and_a_module(folder: str) -> None:
    name = as_job_name(folder) or "job"
    assert is_job_name(name)
    assert is_function(f"{module_name(name)}:f")


@pytest.mark.parametrize(
    ("folder", "name", "module"),
    [
        ("My Ages", "my-ages", "my_ages"),
        ("2026", "2026", "job_2026"),
        ("json", "json", "json_job"),
        ("onyx", "onyx", "onyx_job"),
    ],
)
def test_a_module_hides_none_that_is_there(folder: str, name: str, module: str) -> None:
    assert as_job_name(folder) == name
    assert module_name(name) == module


def test_files_that_are_there_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    with pytest.raises(UserError, match=r"job\.yaml is there already"):
        run_command(["init", "job", str(tmp_path)])
    assert [each.name for each in tmp_path.iterdir()] == ["job.yaml"]


def test_a_folder_is_made_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["init", "plugin", str(tmp_path / "a b")])
    assert (tmp_path / "a b" / "a_b.py").exists()
    assert f"now: cd '{tmp_path / 'a b'}' && onyx run job.yaml" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written: Not a directory"):
        run_command(["init", "job", str(tmp_path / "file" / "below")])
