"""Nexmark and the scale of columns: data whose answer is known, and programs that find it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import data, harness, nexmark, onyx_run, scale

from onyx.model.parsing.job import parse_manifest

QUERIES = list(nexmark.SUMMED)
EVENTS = 20_000


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The code of the example is where the benchmark finds it, and its data is made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(nexmark.EXAMPLE))
        patch.setattr(data, "ROOT", tmp_path_factory.mktemp("nexmark"))
        yield


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.usefixtures("example", "programs")
def test_engines_over_whole_tables_find_the_answer_of_pandas(engine: str, query: str) -> None:
    found = nexmark.events(query, EVENTS)
    frames = importlib.import_module("frames_nexmark")
    answer = getattr(frames, f"{engine}_query")(query, nexmark.SUMMED[query], str(found.folder))
    assert tuple(answer) == found.answer
    assert found.answer[0] > 0


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("columns", [False, True])
def test_a_job_reads_the_data_and_ends_in_the_tally(
    query: str, columns: bool, example: None, programs: None, tmp_path: Path
) -> None:
    found = nexmark.events(query, 100)
    contender = nexmark.contenders(query)["onyx-3-columns" if columns else "onyx-3"]
    assert isinstance(contender, harness.Contender)

    contender.command(found, tmp_path)

    job = parse_manifest((tmp_path / "job.yaml").read_bytes(), "job.yaml")
    inputs = [entry for entry in job.catalog if entry.type == "input"]
    for entry in inputs:
        pattern = Path(str(entry.options["path"]))
        assert len(list(pattern.parent.glob(pattern.name))) == 2
        assert entry.batch_format == ("arrow" if columns else "dicts")
    write = next(entry for entry in job.catalog if entry.type == "output")
    assert (write.plugin, write.batch_format) == ("function", "arrow" if columns else "dicts")
    module, _, name = str(write.options["fn"]).partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_a_tally_counts_dicts_and_rows_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    monkeypatch.syspath_prepend(str(onyx_run.JOBS))
    tallies = importlib.import_module("bench_nexmark")
    monkeypatch.setattr(tallies.Answer, "count", 0)
    monkeypatch.setattr(tallies.Answer, "total", 0)

    tallies.prices([{"price": 3}, {"price": 4}])
    tallies.prices(pa.record_batch({"price": [5, 6]}))
    tallies.prices(pa.record_batch({"price": pa.array([], pa.int64())}))

    assert (tallies.Answer.count, tallies.Answer.total) == (4, 18)


def read(found: data.Data) -> pd.DataFrame:
    paths = sorted(found.folder.glob("part-*"))
    assert len(paths) == 2
    return pd.concat([pd.read_parquet(path) for path in paths])


def test_rows_of_workload_a_at_scale_have_the_answer_that_is_kept(
    bench_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "BLOCK", 700)
    found = scale.rows("a", scale.segments, 3_000)
    table = read(found)
    even = table["n"][table["n"] % 2 == 1] + 1

    assert sorted(table["id"]) == list(range(3_000))
    assert found.answer == (len(even), even.sum())
    assert scale.rows("a", scale.segments, 3_000) == found


def test_rows_of_workload_c_at_scale_have_the_answer_that_is_kept(
    bench_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "BLOCK", 60_000)
    found = scale.rows("c", scale.Minutes(), 300_000)
    table = read(found)
    sums = table.groupby(["key", table["ts"] // data.WINDOW_MS])["v"].sum()

    assert len(table["ts"] // data.WINDOW_MS) > len((table["ts"] // data.WINDOW_MS).unique()) > 2
    assert found.answer == (len(sums), sums.sum())
