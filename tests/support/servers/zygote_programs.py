"""Programs that tests of zygotes start, by the name of a function and its arguments.

What a program finds it writes, as JSON, to the descriptor that is its first argument.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from onyx.processes.forking import Launcher
from onyx.processes.programs import Executable

MODULE = "tests.support.servers.zygote_programs"
"""This one, whose name is another while it is executed."""


def main() -> None:
    name, *arguments = sys.argv[1:]
    PROGRAMS[name](*arguments)


def say(descriptor: str, what: Any) -> None:
    os.write(int(descriptor), json.dumps(what).encode() + b"\n")


def facts(descriptor: str) -> None:
    """What a program can see of the way in which it was started."""
    every = sorted(signal.valid_signals())
    found = {
        "arguments": len(sys.argv),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(dict.fromkeys(sys.path)),
        "leads its session": os.getsid(0) == os.getpid(),
        "signals": {int(each): str(signal.getsignal(each)) for each in every},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "faults are shown": faulthandler.is_enabled(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "umask": os.umask(0o022),
        "output": (sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering),
        "flags": str(sys.flags),
    }
    say(descriptor, found)


def draws(descriptor: str) -> None:
    """Random numbers."""
    numpy = [np.random.random(), np.random.default_rng().random()]
    say(descriptor, [random.random(), uuid.uuid4().hex, *numpy])


def generators(descriptor: str) -> None:
    """Sources of random numbers that were made by an import, other than those that forks seed."""
    gc.unfreeze()
    of_numpy: Any = np.random.mtrand._rand
    of_python: Any = random.random
    seeded = {id(each) for each in (of_python.__self__, of_numpy, of_numpy._bit_generator)}
    kinds = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
    found = [each for each in gc.get_objects() if isinstance(each, kinds)]
    of_system = (random.SystemRandom,)
    made = [each for each in found if id(each) not in seeded and not isinstance(each, of_system)]
    say(descriptor, list(map(repr, made)))


def patient(descriptor: str) -> None:
    """Says its number, and waits for a signal."""
    say(descriptor, os.getpid())
    signal.pause()


def ends(code: str) -> None:
    """Ends, as a program may."""
    ways: Mapping[str, Callable[[], object]] = {
        "0": lambda: None,
        "3": lambda: sys.exit(3),
        "1": lambda: [][0],
        "text": lambda: sys.exit("it has failed"),
        "-15": lambda: os.kill(os.getpid(), signal.SIGTERM),
    }
    ways[code]()


def late(descriptor: str) -> None:
    """Ends with a thread and a hook that have something to say."""
    import atexit

    atexit.register(say, descriptor, "hook")
    threading.Timer(0.05, say, (descriptor, "thread")).start()


def calls(descriptor: str) -> None:
    """A server and a client of gRPC in one process."""
    from concurrent.futures import ThreadPoolExecutor

    handler = grpc.method_handlers_generic_handler(
        "echo", {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
    )
    server = grpc.server(ThreadPoolExecutor(1), handlers=(handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        say(descriptor, channel.unary_unary("/echo/Echo")(b"hello", timeout=30.0).decode())
    server.stop(None).wait()


def supervises(descriptor: str) -> None:
    """Starts a program, as it was started itself, and waits for a signal."""
    launcher = Launcher(os.environ, [MODULE])
    program = Executable(MODULE, ["patient", descriptor], os.environ, [int(descriptor)])
    child = launcher.launch(program)
    asked = subprocess.run(["ps", "-o", "ppid=", str(child.pid)], capture_output=True, check=True)
    say(descriptor, [os.getpid(), int(asked.stdout), child.pid])
    signal.pause()


def begins(descriptor: str) -> None:
    """A command that is nothing else yet, so that its zygote is a fork of it: starts a program."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.stderr = None  # type: ignore[assignment]  # as where it was closed
    launcher = Launcher(os.environ, [MODULE], shared=["onyx.errors"])
    program = Executable(MODULE, ["facts", descriptor], os.environ, [int(descriptor)])
    child = launcher.launch(program)
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), child.pid)]
    child.wait()
    say(descriptor, commands[0] == commands[1])


PROGRAMS: Mapping[str, Callable[..., None]] = {
    each.__name__: each
    for each in (facts, draws, generators, patient, ends, late, calls, supervises, begins)
}

if __name__ == "__main__":
    main()
