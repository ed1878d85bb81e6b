"""A type checker sees in a job by calls what cannot be."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = textwrap.dedent("""\
    from onyx.builder import Job, files, kafka, stdout

    Job("job").read(files("in", header=True)).write(files("out", roll_bytes=3))
    Job("job").read(kafka("server", "one"), batch_size=3).write(kafka("server", "two"))
    Job("job").read(files("in", roll_bytes=3))
    Job("job").read(stdout())
    Job("job", guarantee="once")
    Job("job").read(files("in"), batch_sise=3)
    Job("job").read(files("in"), batch_size="3")
""")
WRONG = [5, 6, 7, 8, 9]


@pytest.mark.slow
def test_a_wrong_direction_key_word_or_type_is_an_error(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    printed, _, _ = api.run([*settings, str(program)])
    errors = re.findall(rf"{re.escape(str(program))}:(\d+): error", printed)
    assert [int(line) for line in errors] == WRONG, printed
