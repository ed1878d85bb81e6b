"""The table of commands leads to commands, and what a person asks for first imports little."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from onyx.cli.table import COMMANDS

HEAVY = ("numpy", "pyarrow", "grpc", "kazoo", "scipy", "rich", "pyspark", "onyx.peer")
JOB = Path(__file__).parents[3] / "examples" / "flights" / "job.yaml"
LOADED = """
import json, sys
from onyx.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_leads_to_a_function_that_explains_itself(name: str) -> None:
    module, _, function = COMMANDS[name][0].partition(":")

    assert getattr(importlib.import_module(module), function).__doc__


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
