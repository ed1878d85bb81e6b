"""Several threads may read their first value of a class at the same time."""

from __future__ import annotations

import subprocess
import sys

RACE = """
from __future__ import annotations
import dataclasses, sys, threading, types
import msgspec
from onyx.plugins.options import check_options
from onyx.base.structs import prepared

sys.setswitchinterval(1e-6)
SOURCE = '''
from __future__ import annotations
from typing import Annotated, Literal
import dataclasses, msgspec
from onyx.plugins.options import Options

class {options}(Options, frozen=True):
    path: str | list[str]
    kinds: dict[str, Literal["int", "str"]]
    size: Annotated[int, msgspec.Meta(ge=1)] = 5

@prepared
@dataclasses.dataclass(frozen=True, slots=True)
class {plain}:
    path: str | list[str]
    kinds: dict[str, Literal["int", "str"]]
    size: Annotated[int, msgspec.Meta(ge=1)] = 5
'''
VALUE = {"path": "x", "kinds": {"a": "int"}, "size": 3}
read = []


def together(work):
    gate = threading.Barrier(8)
    def run():
        gate.wait()
        read.append(work())
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for number in range(100):
    module = types.ModuleType(f"race{number}")
    sys.modules[module.__name__] = module
    names = {"options": f"Options{number}", "plain": f"Plain{number}"}
    module.prepared = prepared
    exec(SOURCE.replace("{options}", names["options"]).replace("{plain}", names["plain"]),
         module.__dict__)
    options, plain = (getattr(module, name) for name in names.values())
    together(lambda: check_options(VALUE, options)[0].size)
    together(lambda: msgspec.convert(VALUE, plain).size)
assert read == [3] * 1600, len(read)
"""


def test_classes_that_are_read_by_several_threads_at_once_do_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
