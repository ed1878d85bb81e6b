"""Bad manifests: each file of `bad/` says in comment lines which problems it has, and no others.

`# expect: <path>: <beginning of the message> ~ <part of the hint>`; without a path, the text only
has to occur. The hint may be left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onyx.errors import ManifestError, Problem
from onyx.model.parsing.job import parse_manifest

FILES = sorted((Path(__file__).parent / "bad").glob("*.yaml"))


def expectations(text: str) -> list[str]:
    marker = "# expect: "
    return [line[len(marker) :] for line in text.splitlines() if line.startswith(marker)]


def answers(expected: str, problem: Problem) -> bool:
    said, _, hint = expected.partition(" ~ ")
    shown = f"{problem.path}: {problem.message}"
    return said.strip() in shown and hint in problem.hint


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_problem_of_a_bad_manifest_is_reported_and_nothing_else(path: Path) -> None:
    text = path.read_text("utf-8")
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, path.name)
    problems = caught.value.problems
    expected = expectations(text)
    assert expected, "a bad manifest says what is expected of it"
    for each in expected:
        assert any(answers(each, problem) for problem in problems), f"{each}\n{caught.value}"
    for problem in problems:
        assert any(answers(each, problem) for each in expected), f"not expected: {problem}"
        assert problem.where.startswith(f"{path.name}:")
