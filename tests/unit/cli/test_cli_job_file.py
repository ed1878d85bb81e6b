"""Every command that reads a job file refuses the same mistakes, each with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from onyx.cli import command as onyx

JOB = """\
apiVersion: onyx.dev/v1beta1
kind: OnyxJob
metadata: {name: typo}
spec:
  workflow: [[read, write]]
  catalog:
    - name: read
      type: input
      plugin: generator
      options:
        segments: 10
        sedments: 20
    - {name: write, type: output, plugin: blackhole}
"""


@pytest.mark.parametrize("command", ["validate", "run", "plan", "submit", "submit --dry-run"])
def test_an_unknown_option_of_a_plugin_is_invalid_at_its_line(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "typo.yaml"
    file.write_text(JOB)
    monkeypatch.setattr("sys.argv", ["onyx", *command.split(), str(file)])

    with pytest.raises(SystemExit) as ended:
        onyx()

    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {file}:12: spec.catalog[0].options.sedments: is not known [task read] "
        "(did you mean segments?)",
        "1 problem found",
    ]


LONG = "x" * 100_000


def writing(output: str) -> str:
    return JOB.replace("plugin: blackhole", output)


@pytest.mark.parametrize(
    "text",
    [
        JOB.replace("sedments", LONG),
        JOB.replace("sedments: 20", f"segments: {LONG}"),
        JOB.replace("plugin: generator", f"plugin: {LONG}"),
        JOB.replace("name: read", f"name: {LONG}"),
        JOB.replace("  workflow", f"  {LONG}: 1\n  workflow"),
        JOB.replace(
            "plugin: blackhole", f"plugin: files, options: {{path: o, compression: {LONG}}}"
        ),
        writing(f"plugin: files, options: {{path: o, compression: {LONG}}}"),
        writing(f"plugin: files, options: {{path: o, format: {LONG}}}"),
        writing(f"plugin: spark, options: {{path: o, stage: 'm:f', write: {{{LONG}: 1}}}}"),
        writing(f"plugin: spark, options: {{path: o, stage: 'm:f', master: {LONG}}}"),
    ],
    ids=lambda text: text.replace(LONG, "LONG")[-60:],
)
def test_no_message_repeats_a_name_of_100_000_characters(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(text)
    monkeypatch.setattr("sys.argv", ["onyx", "validate", str(file)])

    with pytest.raises(SystemExit) as ended:
        onyx()

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"error: {file}:" in said
    assert max(map(len, said.splitlines())) < 1_000


SHORT = """\
spec:
  catalog:
    - {name: read, plugin: generator, options: {segments: 10}}
    - {name: write, plugin: blackhole}
"""


def explained(file: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    monkeypatch.setattr("sys.argv", ["onyx", "validate", "--explain", str(file), *more])
    onyx()


def test_a_job_is_printed_with_all_that_its_file_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(SHORT + "  desiredState: Suspended\n")
    explained(file, monkeypatch)
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out) == {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "short"},
        "spec": {
            "workflow": [["read", "write"]],
            "catalog": [
                {
                    "name": "read",
                    "type": "input",
                    "plugin": "generator",
                    "options": {"segments": 10},
                },
                {"name": "write", "type": "output", "plugin": "blackhole"},
            ],
            "desiredState": "Suspended",
        },
    }
    assert "desiredState: is for the operator" in printed.err, "warnings stand beside it"
    again = tmp_path / "again.yaml"
    again.write_text(printed.out)
    explained(again, monkeypatch)
    assert capsys.readouterr().out == printed.out
    explained(file, monkeypatch, "--json")
    assert json.loads(capsys.readouterr().out)["manifest"] == yaml.safe_load(printed.out)


def test_what_is_wrong_is_said_in_place_of_an_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(SHORT + "    - {name: also, plugin: blackhole}\n")
    with pytest.raises(SystemExit) as ended:
        explained(file, monkeypatch)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert "write, in the middle, has a plugin (give the edges: [[from, to], ...])" in printed.err


@pytest.mark.parametrize("command", ["validate", "run", "plan", "submit"])
def test_a_python_file_is_named_as_what_it_is(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "ages.py"
    file.write_text("def age(segment):\n    return segment\n")
    monkeypatch.setattr("sys.argv", ["onyx", command, str(file)])
    with pytest.raises(SystemExit) as ended:
        onyx()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {file}: is a Python file, and no job file (a job that it builds runs with "
        f"`python {file}`; `onyx init` writes a job file)",
        "1 problem found",
    ]
