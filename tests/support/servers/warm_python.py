"""Python programs as forks of one zygote, which has imported what they need.

Programs that are started one after another spend most of their CPU on the same imports. What runs
here is a process of its own, with its own arguments, environment and modules, as
`onyx.processes.zygote` makes it; this module is what each runs first.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onyx.processes.child import worker_environment
from onyx.processes.forking import Launcher
from onyx.processes.programs import Executable
from onyx.settings import Settings

ROOT = Path(__file__).parents[3]
PROGRAM_S_MAX = 300.0
CALL = "call"
"""In place of a program: the function in a file."""


class Ended(NamedTuple):
    """How a program has ended."""

    code: int
    cpu_s: float
    """Of the process and what it has waited for; 0 if it was killed."""
    rss_peak_bytes: int


class WarmPython:
    """What starts the programs."""

    def __init__(self, modules: Sequence[str], path: Sequence[Path], folder: Path) -> None:
        """
        Args:
            modules: are imported before the first program.
            path: where they are found, besides where this process finds them.
            folder: for what programs leave to be read.
        """
        self._path = os.pathsep.join([*map(str, path), str(ROOT)])
        self._cpu = folder / "cpu.json"
        self._call = folder / "call.pickle"
        self._output = folder / "called.txt"
        self._launcher = Launcher(self._environment({}), [__name__, *modules])

    def close(self) -> None:
        """End it, and what it runs."""
        self._launcher.close()

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> Ended:
        """Run a program to its end.

        Args:
            arguments: what `python` would be given: `-m MODULE ...` or `FILE ...`.
            environment: what is added to that of this process.
            output: file that gets what it prints.
        """
        self._cpu.write_text("0.0")
        with open(os.devnull, "rb") as nothing, open(output, "wb") as printed:
            streams = nothing.fileno(), printed.fileno(), printed.fileno()
            variables = self._environment(environment)
            words = [str(self._cpu), *arguments]
            program = Executable(__name__, words, variables, folder=ROOT, streams=streams)
            process = self._launcher.launch(program)
        process.wait(PROGRAM_S_MAX)
        assert process.ended is not None
        return Ended(process.ended.code, json.loads(self._cpu.read_text()), process.ended[1])

    def call(self, work: Any, arguments: Sequence[object]) -> Any:
        """What a function of a module gives in a process of its own."""
        self._call.write_bytes(pickle.dumps((work, arguments)))
        ended = self.run([CALL, str(self._call)], {}, self._output)
        assert ended.code == 0, self._output.read_text()
        return pickle.loads(self._call.read_bytes())

    def _environment(self, added: Mapping[str, str]) -> dict[str, str]:
        path = filter(None, [added.get("PYTHONPATH"), self._path])
        quiet = worker_environment(Settings())  # what is imported then starts no thread
        return {**quiet, **added, "PYTHONPATH": os.pathsep.join(path)}


def main() -> None:
    """Run a program, and leave what it has used."""
    used, first, *rest = sys.argv[1:]
    try:
        if first == CALL:
            path = Path(rest[0])
            work, arguments = pickle.loads(path.read_bytes())
            path.write_bytes(pickle.dumps(work(*arguments)))
        elif first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(first).parent))
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    finally:
        usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        cpu_s = sum(each.ru_utime + each.ru_stime for each in usages)
        Path(used).write_text(json.dumps(cpu_s))


if __name__ == "__main__":
    main()
