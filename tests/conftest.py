"""Servers and authorities for the whole session of tests, made when the first test asks for one."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from msgspec.structs import replace
from tests.support.servers.certificates import Secret
from tests.support.servers.kafka_broker import KafkaBroker
from tests.support.servers.object_stores import Gateway, ObjectStore
from tests.support.servers.ports import free_port
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.queue_servers import NatsServer, RedisServer
from tests.support.servers.s3_server import S3Server
from tests.support.servers.spark_archive import QUICK, jvm_options
from tests.support.servers.sql_databases import Database
from tests.support.spark.children import of_any_test
from tests.support.spark.lent_jvms import lending

from onyx import api
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import Settings, ZooKeeperSettings

pytest_plugins = [
    "pytester",
    *(f"tests.support.suite.{name}" for name in ("tiers", "costs", "units")),
]

# A query of Spark runs once here, over few rows: to compile it takes longer than to interpret it.
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
# Each JVM of Spark lives for seconds here. Processes that tests start inherit this.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{jvm_options()} {INTERPRETED}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
# Whoever writes a test writes its jobs and their code.
for name, value in (
    ("ONYX_JOB_PATHS", "/"),
    ("ONYX_JOB_VARIABLES", "*"),
    ("ONYX_SPARK_CONF_ALLOWED", "*"),
):
    os.environ.setdefault(name, value)
# Containers often forbid Python to keep what it has compiled. Then each process that is started
# compiles all of Onyx anew, and each of pytest's workers all tests: 6 s of CPU.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A shell starts what runs in the background with this signal ignored, and so would be all processes
# that tests start: what is sent to them to end them would do nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as `nohup` does
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Of what is collected nothing becomes garbage, and looking for it time and again takes 2 s.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_not_looked_at() -> Iterator[None]:
    """A process that runs thousands of tests has a million objects, and many tests collect what
    they leave behind, for a quarter of a second each time. So collections look at what a module
    makes, and what it leaves is collected at its end, while it still answers for it."""
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def logs_have_the_level_that_they_had() -> Iterator[None]:
    """What starts a command in this process sets it, and the next module asks for its logs."""
    loggers = [logging.getLogger(name) for name in ("", "onyx", "onyx_operator")]
    levels = [each.level for each in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


# At exit DuckDB names each object of its own that nobody has let go. Not before: pytest collects
# garbage when it ends, among all that is not frozen.
atexit.register(gc.unfreeze)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def jvms_are_lent(run_folder: Path) -> Iterator[None]:
    """Processes that tests start inherit where: see `lent_jvms`. Without PySpark, as with the
    lowest versions of all else, there is nothing to lend."""
    if find_spec("pyspark") is None:
        yield
        return
    with lending(run_folder / "jvms") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home))
        yield


@pytest.fixture(scope="session", autouse=True)
def children_outlive_tests() -> Iterator[None]:
    """A child with Spark serves requests of the environment that it began with. The name of the
    test that runs, which pytest keeps in a variable, is no reason for another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onyx.spark.child.runner.inherited", of_any_test)
        yield


@pytest.fixture(scope="module")
def own_jvms() -> Iterator[None]:
    """Each session of Spark has a JVM of its own, which is a child of the process that asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_HOME")
        yield


@pytest.fixture(scope="module", autouse=True)
def spark_connect_is_forgotten() -> Iterator[None]:
    """A session with a Connect server has PySpark set variables, by which each process that is
    started later would look for that server."""
    yield
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A running server shared by all tests: use a tenancy of your own and do not stop it."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), port=free_port()) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def environments_share_a_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """`with_test_env` begins with a server of its own, for a second of CPU. Here it begins with a
    tenancy of its own; the tests of new projects have the real one."""

    def start_env(settings: Settings, folder: Path | None, **_: object) -> api.Env:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        url = settings.state.url or str(folder and folder / "state")
        shared = replace(
            settings,
            zookeeper=replace(settings.zookeeper, address=server.address),
            state=replace(settings.state, url=url),
            tenancy_id=uuid.uuid4().hex,
        )
        return api.Env(shared, server)

    instead = {"start_env": start_env, "shutdown_env": lambda env: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onyx.testing.env.api", SimpleNamespace(**{**vars(api), **instead}))
        yield


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Signs the certificates of a cluster."""
    return trustme.CA()


@pytest.fixture(scope="session")
def stranger() -> trustme.CA:
    """Signs certificates that the cluster must not accept."""
    return trustme.CA()


@pytest.fixture(scope="session")
def secure_zookeeper(
    tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA
) -> Iterator[ZooKeeperSettings]:
    """Settings that lead to a server with TLS, with a certificate and a user."""
    folder = tmp_path_factory.mktemp("secure-zookeeper")
    password = folder / "password"
    password.write_text("not-to-be-seen\n")
    tls = Secret(folder / "tls", authority).settings()
    with ZooKeeperServer(folder / "data", tls=tls, port=free_port()) as server:
        yield ZooKeeperSettings(
            server.address, tls=tls, auth_user="onyx", auth_password_file=str(password)
        )


@pytest.fixture(scope="session")
def fake_s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A real object store; tests that ask for it are skipped where it has not been built."""
    server = Gateway(tmp_path_factory.mktemp("s3_gateway"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker shared by all tests: make topics of your own, and start it again if you have
    killed it. Tests that ask for it are skipped where Kafka has not been fetched."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real server shared by all tests: use streams of your own, and start it again if you have
    killed it. Tests that ask for it are skipped where Redis has not been fetched."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A real server with JetStream shared by all tests, as `redis_server` is."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@pytest.fixture(params=["fake_s3", "s3_gateway"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty bucket of each server, to which the environment leads."""
    return _bucket_of(request.getfixturevalue(request.param), monkeypatch)


@pytest.fixture
def fake_store(fake_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty bucket of the server whose faults can be chosen."""
    return _bucket_of(fake_s3, monkeypatch)


def _bucket_of(server: S3Server | Gateway, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(server)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A running server shared by all tests; do not stop it."""
    server = PostgreSQL()
    yield server
    server.close()


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'test.db'}")


@pytest.fixture
def postgresql_database(postgresql: PostgreSQL) -> Database:
    return Database(postgresql.empty())


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Database:
    """An empty database of each kind."""
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found
