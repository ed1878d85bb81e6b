"""Commands that are given a name which no job can have: refused before any server is asked."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.server
COMMANDS = [
    ["kill", "../x"],
    ["suspend", "/etc"],
    ["resume", "a/b"],
    ["drain", ".."],
    ["jobs", "a" * 3_000],
    ["state", "..", "sums"],
    ["submit", "job.yaml", "--upgrade", "../x"],
]


@pytest.mark.short(3)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_the_exit_code_is_2_and_the_message_has_the_rule(command):
    nowhere = ["--zookeeper", "127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-m", "onyx.cli", *command, *nowhere],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "cannot be the id of a job: use letters, digits" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 400
