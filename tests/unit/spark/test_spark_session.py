"""Settings of a session, names of stages, and the text of an exception. No JVM."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from onyx.errors import NameNotRegistered, Unavailable
from onyx.spark.child.run_stage import named
from onyx.spark.session.blame import MESSAGE_CHARACTERS_MAX, failure_message
from onyx.spark.session.connect import require_one
from onyx.spark.session.jvm import how_ended
from onyx.spark.session.kept import sessions_beside
from onyx.spark.session.masters import places_of
from onyx.spark.session.opening import begin_session, configuration, open_session
from onyx.spark.session.shipping import ship, ship_modules
from onyx.spark_query import failure
from onyx.spark_query.failure import found_in


def test_a_local_session_keeps_to_loopback_and_to_its_scratch_directory() -> None:
    settings = configuration("local[*]", Path("/scratch"), {})
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.ui.enabled"] == "false"
    for key in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert settings[key].startswith("/scratch/")


def test_a_cluster_may_reach_the_driver() -> None:
    settings = configuration("spark://host:7077", Path("/scratch"), {})
    assert "spark.driver.host" not in settings
    assert "spark.driver.bindAddress" not in settings


def test_what_the_user_sets_wins() -> None:
    settings = configuration("local[2]", Path("/s"), {"spark.driver.memory": "4g"})
    assert settings["spark.driver.memory"] == "4g"


def test_the_jvm_of_a_query_without_end_is_quick_to_start_and_others_compute_fast() -> None:
    for quick in (False, True):
        options = configuration("local[2]", Path("/s"), {}, quick)["spark.driver.extraJavaOptions"]
        assert ("-XX:TieredStopAtLevel=1" in options.split()) is quick


class DeadContext:
    """Of a JVM that was killed, which answers nothing."""

    class _gateway:
        class proc:
            @staticmethod
            def wait(timeout_s: float) -> int:
                return -9

    def setJobGroup(self, *_: object) -> None:
        raise ConnectionRefusedError("no JVM")


class DeadSession:
    sparkContext = DeadContext()


def test_a_jvm_that_is_gone_leaves_the_error_of_the_run_beside_its_query(tmp_path: Path) -> None:
    def run() -> None:
        with sessions_beside(DeadSession(), "local[2]", tmp_path, {}) as sessions:
            assert "was killed (SIGKILL)" in sessions.how_ended()
            raise Unavailable("the JVM of Spark has ended while the stage ran")

    with pytest.raises(Unavailable, match="while the stage ran"):
        run()


@pytest.mark.parametrize(
    ("code", "said"),
    [(-9, "was killed (SIGKILL)"), (137, "was killed (SIGKILL)"), (-15, "was killed (SIGTERM)"),
     (1, "has ended with code 1")],
)  # fmt: skip
def test_how_a_jvm_has_ended_is_said(code: int, said: str) -> None:
    gateway = SimpleNamespace(proc=SimpleNamespace(wait=lambda timeout_s: code))
    assert said in how_ended(gateway)


def test_a_query_whose_jvm_is_gone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "how_ended", lambda: "was killed (SIGKILL)")
    found = found_in(ConnectionRefusedError("[Errno 111] Connection refused"))
    assert found.message.startswith("the JVM of Spark was killed (SIGKILL) while the query ran")
    assert (found.by_user, found.away) == (False, True)


def test_a_master_that_does_not_answer_is_said_at_once(tmp_path: Path) -> None:
    for start in (open_session, begin_session):
        with pytest.raises(Unavailable, match=r"no Spark master answers at 127\.0\.0\.1:1: Conn"):
            start("spark://127.0.0.1:1", "n", tmp_path, {})


def test_of_several_masters_one_has_to_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        require_one("Spark master", places_of(f"spark://127.0.0.1:1,127.0.0.1:{port}"))
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:1: .*, 127\.0\.0\.1:{port}: "):
        require_one("Spark master", places_of(f"spark://127.0.0.1:1,127.0.0.1:{port}"))


class Receiver:
    """A session that is sent files."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:
        assert pyfile
        inside = zipfile.ZipFile(path).namelist() if path.endswith(".zip") else []
        self.files[Path(path).name] = inside


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shipped_module.py").write_text("")
    (tmp_path / "shipped_package" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/tasks.py"):
        (tmp_path / "shipped_package" / name).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    importlib.invalidate_caches()
    for name in ("shipped_module", "shipped_package"):
        sys.modules.pop(name, None)


def test_modules_of_the_user_go_with_a_job_and_installed_ones_do_not(code: Path) -> None:
    sent, scratch = Receiver(), code / "scratch"
    scratch.mkdir()
    modules = ["shipped_package.inner.tasks", "shipped_package.inner", "shipped_module"]
    ship_modules(sent, [*modules, "json", "msgspec"], scratch)
    names = ["__init__.py", "inner/__init__.py", "inner/tasks.py"]
    assert sent.files == {
        "shipped_module.py": [],
        "shipped_package.zip": [f"shipped_package/{name}" for name in names],
    }


def test_what_shipped_modules_import_goes_along_and_their_neighbours_do_not(code: Path) -> None:
    (code / "shipped_package" / "inner" / "tasks.py").write_text(
        "import json, pyspark, onyx.errors\nfrom . import inner\ntry:\n    import nowhere\n"
        "except ImportError:\n    pass\ndef f(n):\n    from shipped_helper import g\n"
    )
    (code / "shipped_helper.py").write_text("import shipped_helper, shipped_module as other\n")
    (code / "shipped_neighbour.py").write_text("")
    for send in (
        lambda to: ship_modules(to, ["shipped_package.inner.tasks"], code),
        lambda to: ship(to, "shipped_package.inner.tasks:f", code),
    ):
        sent = Receiver()
        send(sent)
        assert set(sent.files) == {"shipped_package.zip", "shipped_helper.py", "shipped_module.py"}


def test_a_package_that_is_too_large_is_taken_to_be_there(
    code: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onyx.spark.session.shipping.BYTES_MAX", 10)
    (code / "shipped_package" / "__init__.py").write_text("# more than ten bytes")
    sent = Receiver()
    ship_modules(sent, ["shipped_package"], code)
    assert sent.files == {}
    assert "more than 10 bytes" in caplog.text


@pytest.mark.parametrize("name", ["json:nothing", "json:codecs", "os:system", "json:_x"])
def test_a_name_resolves_only_to_a_function_of_its_module(name: str) -> None:
    assert named("json:load").__name__ == "load"
    with pytest.raises(NameNotRegistered):
        named(name)


def test_an_exception_of_a_stage_is_shown_with_its_place_and_cut() -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        text = failure_message(error)
    assert text.startswith("ValueError: xxx")
    assert "test_spark_session.py" in text
    assert len(text) < MESSAGE_CHARACTERS_MAX + 1_000


def test_a_worker_does_not_pay_for_spark() -> None:
    code = "import sys, onyx.spark.stage.output; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"False\n"
