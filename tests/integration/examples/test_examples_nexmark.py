"""The Nexmark jobs write what pandas computes of the same events."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from onyx.model.parsing.job import parse_manifest
from onyx.settings import Settings
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
FOLDER = Path(__file__).parents[3] / "examples" / "nexmark"
EVENTS = 120_000
"""12 seconds of event time: windows of ten seconds that are complete before the end, and others."""
MODULES = ["nexmark.dicts", "nexmark.columns"]
JOBS = sorted(path.name for path in FOLDER.glob("*.yaml"))
SHORT = {"q5.yaml", "q9-columns.yaml"}
"""A function, windows and a join, in both formats; the others do the same in other words."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """From which relative paths of the jobs count: with data. Their code is on the path."""
    made = tmp_path_factory.mktemp("nexmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import_module("generate").generate(made / "data", EVENTS)
        yield made


@pytest.fixture(scope="module")
def env(folder: Path) -> Iterator[TestEnv]:
    with with_test_env(7, modules=MODULES, settings=Settings(data_dir=str(folder))) as env:
        yield env


@pytest.fixture
def answers(folder: Path) -> ModuleType:
    return import_module("nexmark.answers")


@pytest.mark.parametrize(
    "file",
    [each if each in SHORT else pytest.param(each, marks=pytest.mark.slow) for each in JOBS],
)
def test_a_query_writes_what_pandas_computes(
    file: str, env: TestEnv, folder: Path, answers: ModuleType
) -> None:
    job = parse_manifest((FOLDER / file).read_text("utf-8"), file)
    expected = answers.answer(file.split("-")[0].removesuffix(".yaml"), folder / "data")

    status = env.run(job)

    assert status.state == "completed", status
    (write,) = [entry for entry in job.catalog if entry.plugin == "files" and entry.name == "write"]
    found = answers.written(folder / write.options["path"])
    assert len(expected) > 0
    assert answers.agree(found, expected), (len(found), len(expected))
