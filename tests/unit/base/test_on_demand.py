"""What is imported on demand is there, and no worker process imports it before."""

from __future__ import annotations

import copy
import json
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest

from onyx.base.on_demand import ModuleOnDemand, OnDemand
from onyx.errors import SettingsError
from onyx.processes.forking import WORKER

ENGINE = Path(__file__).parents[3] / "worker" / "onyx"
PATH = re.compile(r'OnDemand\("(onyx\.[\w.]+:\w+)"\)')
PATHS = sorted({each for file in ENGINE.rglob("*.py") for each in PATH.findall(file.read_text())})


@pytest.mark.parametrize("path", PATHS)
def test_what_is_loaded_on_demand_is_there(path: str) -> None:
    thing: object = OnDemand(path).load()

    assert callable(thing)


OF_SOME_WORKERS = (
    *("pyarrow.compute", "pyarrow.csv", "pyarrow.fs", "pyarrow.parquet"),
    *("click", "http.server", "multiprocessing.process", "prometheus_client", "uvicorn"),
)
"""Packages that are needed for columns, requests over HTTP and metrics."""
OURS_MAX = 428
"""Modules and packages of Onyx: as many as there are, rounded up, and only ever fewer."""


def test_a_worker_process_has_nothing_on_demand_at_its_start() -> None:
    """Also when it reads and writes rows of files as dicts."""
    files = "onyx.plugins.files.input, onyx.plugins.files.output"
    code = f"import json, sys, {WORKER}, {files}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)

    assert "onyx.task.kinds" in loaded
    assert [path for path in PATHS if path.partition(":")[0] in loaded] == []
    assert [name for name in OF_SOME_WORKERS if name in loaded] == []
    assert len([name for name in loaded if name.split(".")[0] == "onyx"]) <= OURS_MAX


def test_names_of_a_module_on_demand_are_those_of_the_module() -> None:
    text = ModuleOnDemand("string")

    assert text.digits is string.digits
    with pytest.raises(AttributeError, match="nothing"):
        text.nothing  # noqa: B018
    assert copy.copy(text).digits is string.digits


def test_a_module_of_an_extra_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onyx.console.serve", None)
    serve = ModuleOnDemand("onyx.console.serve", extra="console")

    with pytest.raises(SettingsError, match=r"the console needs .*onyx-on-kubernetes\[console\]"):
        serve.serving  # noqa: B018
