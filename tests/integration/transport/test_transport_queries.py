"""Questions about a state over real gRPC, beside the streams and under the same TLS."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path

import grpc
import pytest
import trustme
from msgspec.structs import replace
from tests.integration.transport.test_transport_contract import SETTINGS, A, Side, eventually, stop
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.errors import Unavailable, UserError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.grpc_channel import METHOD
from onyx.transport.grpc_state_queries import QUERIES_MAX
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.state_asking import ask
from onyx.transport.state_queries import ANSWER_BYTES_MAX, StateAnswer, StateQuery

pytestmark = pytest.mark.server
QUERY = StateQuery("tenancy", A, PeerId("p"), JobId("j"), AllocationVersion(7), "w", b"k", 100)

Answering = Callable[[StateQuery], Future[StateAnswer]]


class Answerer(Side):
    """A group whose tasks answer as a test says."""

    def __init__(self, transport: GrpcTransport, answering: Answering) -> None:
        super().__init__(A, transport)
        self.on_query = answering  # type: ignore[assignment,method-assign]


@contextlib.contextmanager
def group(answering: Answering, files: CertificateFiles | None = None) -> Iterator[str]:
    """The address of a running group."""
    transport = GrpcTransport(SETTINGS, "tenancy", files)
    try:
        transport.start(A, Answerer(transport, answering))
        yield transport.address
    finally:
        stop(transport)


def answered(result: StateAnswer | Exception) -> Answering:
    def answer(_: StateQuery) -> Future[StateAnswer]:
        future: Future[StateAnswer] = Future()
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
        return future

    return answer


def put(
    address: str,
    query: StateQuery = QUERY,
    files: CertificateFiles | None = None,
    timeout_s: float = WAIT_S,
) -> StateAnswer:
    return ask(address, query, SETTINGS, files, timeout_s)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("size", [0, 10, ANSWER_BYTES_MAX])
def test_a_question_reaches_the_task_and_its_answer_the_client(
    size: int, secure: bool, tmp_path: Path, authority: trustme.CA
) -> None:
    files = Secret(tmp_path, authority).files() if secure else None
    asked: list[StateQuery] = []
    data = bytes(size)

    def answer(query: StateQuery) -> Future[StateAnswer]:
        asked.append(query)
        return answered(StateAnswer(data, True))(query)

    with group(answer, files) as address:
        assert put(address, files=files) == StateAnswer(data, True)
    assert asked == [QUERY]


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (UserError("no such window"), UserError, "^no such window$"),
        (Unavailable("recovering"), Unavailable, "does not answer: recovering"),
        (RuntimeError("a bug"), UserError, "INTERNAL: RuntimeError: a bug"),
    ],
)
def test_what_the_task_says_is_told(
    raised: Exception, expected: type[Exception], message: str
) -> None:
    with group(answered(raised)) as address, pytest.raises(expected, match=message):
        put(address)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": GroupId("other")}, "this is group group-a, and group other was asked"),
        ({"tenancy": "other"}, "this worker is of another tenancy than 'other'"),
    ],
    ids=["group", "tenancy"],
)
def test_another_process_at_the_address_does_not_answer_for_the_one_that_was(
    change: dict[str, str], message: str
) -> None:
    def nobody(query: StateQuery) -> Future[StateAnswer]:
        raise AssertionError("no task is asked")

    with group(nobody) as address, pytest.raises(Unavailable, match=message):
        put(address, replace(QUERY, **change))  # type: ignore[arg-type]


def test_a_task_that_does_not_come_to_it_is_given_up_and_need_not_answer() -> None:
    future: Future[StateAnswer] = Future()
    with group(lambda _: future) as address, pytest.raises(Unavailable):
        put(address, timeout_s=0.2)
    eventually(future.cancelled, "the question's end")


def test_a_worker_that_ends_waits_for_no_answer() -> None:
    future: Future[StateAnswer] = Future()
    asked = threading.Event()

    def answer(_: StateQuery) -> Future[StateAnswer]:
        asked.set()
        return future

    with futures.ThreadPoolExecutor(1) as pool:
        with group(answer) as address:
            waiting = pool.submit(put, address)
            assert asked.wait(WAIT_S)
        with pytest.raises(Unavailable):
            waiting.result(WAIT_S)
    eventually(future.cancelled, "the question's end")


def test_only_so_many_questions_are_let_in_and_streams_keep_their_threads() -> None:
    future: Future[StateAnswer] = Future()
    waiting = threading.Semaphore(0)

    def answer(_: StateQuery) -> Future[StateAnswer]:
        waiting.release()
        return future

    pool = futures.ThreadPoolExecutor(QUERIES_MAX)
    with group(answer) as address, pool:
        first = [pool.submit(put, address) for _ in range(QUERIES_MAX)]
        assert all(waiting.acquire(timeout=WAIT_S) for _ in first)
        with pytest.raises(Unavailable, match="16 questions are being answered"):
            put(address)
        future.set_result(StateAnswer(b"x", False))
        assert {each.result(WAIT_S).data for each in first} == {b"x"}
        assert put(address).data == b"x"


def test_a_worker_that_is_gone_is_named() -> None:
    with group(answered(StateAnswer(b"", False))) as address:
        pass
    with pytest.raises(Unavailable, match=f"worker at {address} .group group-a. does not answer"):
        put(address)


def test_a_worker_that_is_silent_is_given_up_in_time() -> None:
    with group(answered(StateAnswer(b"", False))) as address:
        proxy = TcpProxy(int(address.rpartition(":")[2]))
        try:
            proxy.hold()
            with pytest.raises(Unavailable, match="does not answer"):
                put(proxy.address, timeout_s=0.5)
        finally:
            proxy.close()


def test_a_worker_of_a_version_without_questions_is_told() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    service, _, method = METHOD[1:].partition("/")
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: iter(()))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(UserError, match="run the same version of Onyx everywhere"):
            put(f"127.0.0.1:{port}")
    finally:
        server.stop(0).wait()


def nothing(query: StateQuery) -> Future[StateAnswer]:
    raise AssertionError("a stranger is not let in")


def test_a_client_of_another_authority_is_refused_and_told(
    tmp_path: Path, authority: trustme.CA, stranger: trustme.CA
) -> None:
    files = Secret(tmp_path / "good", authority).files()
    secret = Secret(tmp_path / "bad", stranger, trusted=authority)
    bad = CertificateFiles(secret.settings(WORKERS), GROUPS, serves=False)
    with (
        group(nothing, files) as address,
        pytest.raises(UserError, match="refuses our certificate ONYX_TLS_CERT_FILE="),
    ):
        put(address, files=bad)


def test_a_client_without_the_name_of_the_cluster_is_refused_and_told(
    tmp_path: Path, authority: trustme.CA
) -> None:
    files = Secret(tmp_path / "good", authority).files()
    secret = Secret(tmp_path / "other", authority, names=("else.test",))
    other = CertificateFiles(secret.settings(WORKERS), GROUPS, serves=False)
    with (
        group(nothing, files) as address,
        pytest.raises(UserError, match=f"carries else.test and not {WORKERS}"),
    ):
        put(address, files=other)


def test_a_client_without_tls_is_told_that_the_worker_has_it(
    tmp_path: Path, authority: trustme.CA
) -> None:
    with (
        group(nothing, Secret(tmp_path, authority).files()) as address,
        pytest.raises(UserError, match="it uses TLS and this process does not: set ONYX_TLS_CA"),
    ):
        put(address)
