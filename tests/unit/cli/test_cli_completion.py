"""`onyx completion`: what a shell offers, as bash itself says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from shlex import quote

import pytest

from onyx.cli.command_table import COMMANDS, run_command

Offered = Callable[..., list[str]]
ASK = '\nCOMP_WORDS=({}); COMP_CWORD={}; _onyx; printf "%s\\n" "${{COMPREPLY[@]}}"'


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    run_command(["completion", shell])
    return capsys.readouterr().out


@pytest.fixture
def offered(capsys: pytest.CaptureFixture[str]) -> Offered:
    """What bash offers for the last of these words."""
    text = script("bash", capsys)

    def asked(*words: str) -> list[str]:
        line = " ".join(map(quote, ("onyx", *words)))
        code = text + ASK.format(line, len(words))
        done = subprocess.run(["bash", "-u", "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return asked


def test_commands_options_and_their_words_are_offered(offered: Offered) -> None:
    assert offered("") == [*COMMANDS, "--version", "--help"]
    assert offered("re") == [name for name in COMMANDS if name.startswith("re")]
    assert offered("jobs", "--w") == ["--watch"]
    assert offered("run", "job.yaml", "--eng") == ["--engine"]
    assert offered("run", "--engine", "") == ["peers", "spark"]
    assert offered("append", "orders", "--ack", "j") == ["journal"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    "words", [("run", ""), ("run", "--keep", ""), ("run", "$(exit)"), ("none", "-"), ("jobs", "'")]
)
def test_where_nothing_is_known_files_are_left_to_the_shell(
    offered: Offered, words: tuple[str, ...]
) -> None:
    assert offered(*words) == []


def test_every_option_of_every_command_is_in_each_script(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for shell, option in (("bash", "--timeout"), ("zsh", "--timeout"), ("fish", "-l timeout")):
        text = script(shell, capsys)
        assert [name for name in (*COMMANDS, option) if name not in text] == []
