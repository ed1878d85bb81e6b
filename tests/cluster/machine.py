"""What the node changes on the machine itself: the kubelet writes some kernel settings, which no
namespace holds. They are written down before and set back after."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.layout import STATE

SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_FILE = STATE / "kernel-settings.json"


def record_kernel_settings() -> None:
    """Write them down, unless a cluster is up already."""
    if not _FILE.exists():
        _FILE.write_text(json.dumps({each: _path(each).read_text().strip() for each in SETTINGS}))


def restore_kernel_settings() -> None:
    """Set back what has changed since."""
    if _FILE.exists():
        for name, value in json.loads(_FILE.read_text()).items():
            if _path(name).read_text().strip() != value:
                _path(name).write_text(value)


def _path(name: str) -> Path:
    return Path("/proc/sys") / name
