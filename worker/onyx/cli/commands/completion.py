"""`onyx completion`: what a shell needs to complete commands, options and the words of these.

The scripts are made from the table of commands and the parameters of their functions, and have
all words in them: to ask `onyx` at each Tab would take a shell longer than somebody types. Zsh
reads the script of bash. Names of jobs are not completed, as the cluster would be asked for them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from onyx.cli.command_line import Argument, Offer, offers

Shell = Literal["bash", "zsh", "fish"]
Commands = Mapping[str, tuple[str, list[Offer]]]
"""The line of each in the listing, and its options."""


def completion(
    shell: Annotated[Shell, Argument("The shell that is to complete.")],
) -> None:
    """Print a script with which a shell completes the commands of onyx and their options.

    In ~/.bashrc: source <(onyx completion bash). In ~/.zshrc, the same with zsh. For fish: onyx
    completion fish > ~/.config/fish/completions/onyx.fish. It says what this version has: make a
    file again after an upgrade.
    """
    from onyx.cli.command_table import COMMANDS, OPTIONS, command  # which has this command too

    commands = {name: (line, list(offers(command(name)))) for name, line in COMMANDS.items()}
    print("\n".join(_SCRIPTS[shell](commands, OPTIONS)))


def _bash(commands: Commands, options: Mapping[str, str]) -> Iterator[str]:
    """Where there is nothing to offer, the shell offers files."""
    values, names = list[str](), list[str]()
    for name, (_, its) in commands.items():
        for each in (each for each in its if each.names and each.has_value):
            after = "|".join(shlex.quote(f"{name} {option}") for option in each.names)
            values.append(_case(after, each.words))
        dashed = [option for each in its for option in each.names]
        plain = [word for each in its if not each.names for word in each.words]
        names += [_case(f"'{name} -'*", dashed), *([_case(f"'{name} '*", plain)] if plain else ())]
    yield from (
        "_onyx() {",
        "local word=${COMP_WORDS[COMP_CWORD]} words=",
        'if [ "$COMP_CWORD" -eq 1 ]; then',
        f"words={shlex.quote(' '.join((*commands, *options)))}",
        "else",
        'case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in',
        *values,
        '*) case "${COMP_WORDS[1]} $word" in',
        *names,
        "esac ;;",
        "esac",
        "fi",
        'COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _onyx onyx",
    )


def _case(pattern: str, words: Sequence[str]) -> str:
    return f"{pattern}) words={shlex.quote(' '.join(words))} ;;"


def _zsh(commands: Commands, options: Mapping[str, str]) -> Iterator[str]:
    yield "autoload -U +X compinit && compinit"
    yield "autoload -U +X bashcompinit && bashcompinit"
    yield from _bash(commands, options)


def _fish(commands: Commands, options: Mapping[str, str]) -> Iterator[str]:
    first = "test (count (commandline -opc)) -eq 1"
    for name, line in (*((name, line) for name, (line, _) in commands.items()), *options.items()):
        yield f"complete -c onyx -f -n {_quoted(first)} -a {_quoted(name)} -d {_quoted(line)}"
    for name, (_, its) in commands.items():
        there = f"test (count (commandline -opc)) -gt 1; and test (commandline -opc)[2] = {name}"
        for each in its:
            flags = [
                f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                for option in each.names
            ]
            if each.words:
                flags.append(f"{'-x ' if each.names else ''}-a {_quoted(' '.join(each.words))}")
            elif each.names and each.has_value:
                flags.append("-r")
            if flags:
                words = " ".join(flags)
                yield f"complete -c onyx -n {_quoted(there)} {words} -d {_quoted(each.help)}"


def _quoted(text: str) -> str:
    """Text in single quotes for fish, which has no other escapes in them."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[Shell, Callable[[Commands, Mapping[str, str]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
