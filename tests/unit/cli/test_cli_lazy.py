"""The table of commands leads to commands, and what a person asks for first imports little."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from onyx.cli import commands
from onyx.cli.command_table import COMMANDS, module_of
from onyx.processes.forking import WORKER

HEAVY = (
    *("numpy", "pyarrow", "grpc", "kazoo", "rich", "pydantic", "pyspark", "logging.config"),
    *("onyx.peer", "onyx.model.cluster", "onyx.telemetry.logs", "onyx.replica.commands"),
    "onyx.storage.folder",
)
OF_A_CLIENT = {"kazoo", "rich", "onyx.replica.commands"}
JOB = Path(__file__).parents[3] / "examples" / "flights" / "job.yaml"
LOADED = """
import json, sys
from onyx.cli import command
try:
    command()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_the_function_of_its_name_in_its_module(name: str) -> None:
    assert getattr(importlib.import_module(module_of(name)), name.replace("-", "_")).__doc__


def test_every_module_of_a_command_has_a_row() -> None:
    assert {
        f"{commands.__name__}.{each.name}" for each in pkgutil.iter_modules(commands.__path__)
    } == {module_of(name) for name in COMMANDS}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["validate", str(JOB)]], ids=lambda each: str(each[0])
)
def test_help_and_validation_import_no_part_of_the_engine(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])

    assert "onyx.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.short(3)
@pytest.mark.parametrize("name", ["drain", "gc", "jobs", "kill", "log", "replica", "submit"])
def test_a_command_that_asks_or_changes_something_imports_no_part_of_a_peer(name: str) -> None:
    code = f"import json, sys, onyx.cli.commands.{name}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)

    assert f"onyx.cli.commands.{name}" in loaded
    assert [each for each in HEAVY if each in loaded and each not in OF_A_CLIENT] == []


def test_a_run_imports_what_its_job_needs_and_no_endpoint_of_metrics() -> None:
    code = "import json, sys, onyx.cli.local_run; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)

    unwanted = ("numpy", "pyarrow", "grpc", "prometheus_client", "http.server", "onyx.peer.group")
    assert "onyx.processes.supervisor" in loaded
    assert [each for each in unwanted if each in loaded] == []


ON_DEMAND = (
    *("onyx.builder", "onyx.cli", "onyx.client", "onyx.testing", "onyx.spark_query"),
    *(
        "onyx.spark_source",
        "onyx.spark.compiler.compile",
        "onyx.spark.windows",
        "onyx.plugins.http",
    ),
    *("onyx.plugins.files", "onyx.plugins.sql", "onyx.plugins.kafka", "onyx.plugins.queues"),
    *("duckdb", "pandas", "pyspark", "rich", "sqlalchemy", "yaml"),
)
"""What no worker needs, or only those of some jobs."""


def test_a_worker_process_imports_what_nearly_every_job_has() -> None:
    code = f"import json, sys, {WORKER}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)

    assert "onyx.peer.membership" in loaded
    assert [each for each in ON_DEMAND if each in loaded] == []
