"""A Python that has imported much, and becomes a process for each program that it is given.

Programs that are started one after another spend most of their CPU on the same imports. Here one
process does these once, opens nothing and starts no thread, and forks: what runs in a fork is a
process of its own, with its own arguments, environment and modules from then on.

`python -m tests.support.servers.warm_python DESCRIPTOR MODULE...` is the process itself: it reads a
`Program` a line, and answers with an `Ended`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

ROOT = Path(__file__).parents[3]
_CALLS = Path(__file__).with_name("pickled_call.py")


class Program(msgspec.Struct):
    """What is run, as `python` would be given it."""

    arguments: list[str]
    """`-m MODULE ...` or `FILE ...`."""
    environment: dict[str, str]
    """What is added to that of this process."""
    output: str
    """File that gets what it prints."""


class Ended(msgspec.Struct):
    """How a program has ended."""

    code: int
    cpu_s: float
    """Of the process and what it has waited for."""
    rss_peak_bytes: int


class WarmPython:
    """Use as a context manager."""

    def __init__(self, modules: Sequence[str], path: Sequence[Path]) -> None:
        """
        Args:
            modules: are imported before the first program.
            path: where they are found, besides where this process finds them.
        """
        self._modules = modules
        self._path = [*map(str, path), str(ROOT)]

    def __enter__(self) -> WarmPython:
        ours, theirs = socket.socketpair()
        number = str(theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, number, *self._modules],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(self._path)},
            cwd=ROOT,
        )
        theirs.close()
        self._connection = ours.makefile("rwb")
        ours.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.wait(60)

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> Ended:
        """Run a program to its end."""
        program = Program([*arguments], {**environment}, str(output))
        self._connection.write(msgspec.json.encode(program) + b"\n")
        self._connection.flush()
        return msgspec.json.decode(self._connection.readline(), type=Ended)

    def call(self, work: Any, arguments: Sequence[object], folder: Path) -> Any:
        """What a function of a module gives in a process of its own."""
        given, output = folder / "call.pickle", folder / "output.txt"
        given.write_bytes(pickle.dumps((work, arguments)))
        ended = self.run([str(_CALLS), str(given)], {}, output)
        assert ended.code == 0, output.read_text()
        return pickle.loads(given.read_bytes())


def main(descriptor: str, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    with socket.socket(fileno=int(descriptor)) as connection, connection.makefile("rwb") as stream:
        while line := stream.readline():
            child = os.fork()
            if child == 0:
                _become(msgspec.json.decode(line, type=Program))
            _, status, used = os.wait4(child, 0)
            code = os.waitstatus_to_exitcode(status)
            ended = Ended(code, used.ru_utime + used.ru_stime, used.ru_maxrss * 1_024)
            stream.write(msgspec.json.encode(ended) + b"\n")
            stream.flush()


def _become(program: Program) -> None:
    """Run a program in this process, and end."""
    with open(program.output, "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.update(program.environment)
    sys.path[:0] = filter(None, program.environment.get("PYTHONPATH", "").split(os.pathsep))
    code = 1
    try:
        first, *rest = program.arguments
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(first).parent))
            sys.argv = program.arguments
            runpy.run_path(first, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
