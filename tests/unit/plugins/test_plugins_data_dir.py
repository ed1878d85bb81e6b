"""Relative paths of a job count from the data directory, wherever the process was started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.plugin_context import plugin_context

from onyx.plugins.protocol import START
from onyx.plugins.registry import build_input, build_output


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


@pytest.mark.parametrize("absolute", [False, True])
def test_files_are_read_and_written_there(tmp_path: Path, absolute: bool) -> None:
    data = tmp_path / "data"
    (data / "in").mkdir(parents=True)
    (data / "in" / "a.jsonl").write_text('{"n": 1}\n')
    base = f"{data}/" if absolute else ""
    source = build_input("files", _context(f"{base}in/*.jsonl", data))
    (name,) = source.partitions()
    sink = build_output("files", _context(f"{base}out", data, format="jsonl"))
    reader = source.open(name, START)
    sink.write(reader.read(10))
    sink.flush()
    for each in (reader, source, sink):
        each.close()

    assert [part.read_text() for part in (data / "out").glob("part-*")] == ['{"n":1}\n']
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_url_is_no_relative_path(tmp_path: Path) -> None:
    context = _context("", tmp_path)

    assert context.located("s3://bucket/in") == "s3://bucket/in"
    assert context.located("in") == str(tmp_path / "in")


def _context(path: str, data: Path, **options: object):
    return plugin_context({"path": path, **options}, data_dir=str(data))
