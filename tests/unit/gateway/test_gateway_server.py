"""The server of a process, over real sockets: clients that are strange, slow, many or gone."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.fake_requests import FakeRequests
from tests.support.servers.gateways import Make, answer, answers, connected, gateways

from onyx.errors import SettingsError, Unavailable
from onyx.gateway.gateway import Gateway
from onyx.requests.request import Answer, Append, Status
from onyx.serving import connection as connections
from onyx.serving import server as servers

TURNS_MAX = int(WAIT_S / 0.01)
HEAD = b"POST /jobs/orders/in HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SWEEP_INTERVAL_S", 0.02)


@pytest.fixture
def made(requests: FakeRequests) -> Iterator[Make]:
    with gateways(requests) as make:
        yield make


def works(gateway: Gateway) -> bool:
    with connected(gateway) as connection:
        connection.sendall(WHOLE)
        return answer(connection).startswith(b"HTTP/1.1 200")


def until(done: Callable[[], bool]) -> None:
    waiter = threading.Event()
    for _ in range(TURNS_MAX):
        if done():
            return
        waiter.wait(0.01)
    raise AssertionError("it did not come to pass")


# --- a client as it should be -------------------------------------------------------------------


def test_many_requests_go_over_one_connection(made: Make, requests: FakeRequests):
    client = HTTPConnection("127.0.0.1", made().port, timeout=10)
    for number in range(3):
        body = json.dumps({"n": number})
        client.request("POST", "/jobs/orders/in", body, {"Content-Type": "application/json"})
        response = client.getresponse()
        assert (response.status, json.load(response)["status"]) == (200, "processed")
    client.close()
    assert [each.payload.data for each in requests.appended] == [
        b'{"n": 0}',
        b'{"n": 1}',
        b'{"n": 2}',
    ]


def test_a_body_may_come_in_chunks_and_after_100_continue(made: Make, requests: FakeRequests):
    with connected(made()) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
        connection.sendall(b'5\r\n{"n":\r\n2\r\n1}\r\n0\r\n\r\n')
        assert b" 200 " in answer(connection)
    assert requests.appended[0].payload.data == b'{"n":1}'


def test_requests_that_follow_without_waiting_are_answered_in_their_order(made: Make):
    with connected(made()) as connection:
        connection.sendall(WHOLE * 3)
        found = b""
        while found.count(b"}}") < 3:
            found += connection.recv(65_536)
    assert found.count(b"HTTP/1.1 200") == 3


def test_whoever_waits_for_100_continue_is_not_asked_for_what_is_refused(made: Make):
    with connected(made(body_bytes_max=10)) as connection:
        connection.sendall(HEAD + b"content-length: 11\r\nexpect: 100-continue\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 413")


def test_a_port_that_is_taken_is_said(made: Make):
    with pytest.raises(Unavailable, match=r"http\.port"):
        made(port=made().port)


# --- clients as they may be ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS, which is not here
        b"GET\r\n\r\n",
        b"POST /jobs/orders/in HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /jobs/orders/in HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        b"\x00" * 50,
    ],
)
def test_garbage_ends_its_connection_and_nothing_else(made: Make, data: bytes):
    gateway = made()
    with connected(gateway) as connection:
        connection.sendall(data)
        assert answers(connection).startswith(b"HTTP/1.1 400")
    assert works(gateway)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([WHOLE, HEAD])), max_size=5))
def test_whatever_strangers_send_others_are_served(parts: list[bytes]) -> None:
    requests = FakeRequests()
    with gateways(requests) as make:
        gateway = make()
        with connected(gateway) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(b"".join(parts))
            connection.shutdown(socket.SHUT_WR)
        assert works(gateway)


def test_a_head_without_end_is_cut(made: Make):
    gateway = made()
    with connected(gateway) as connection, contextlib.suppress(ConnectionError):
        for _ in range(1_000):
            connection.sendall(b"POST / HTTP/1.1\r\n" + b"x: y\r\n" * 1_000)
        pytest.fail("it went on reading")
    assert works(gateway)


@pytest.mark.parametrize("sent", [b"", b"POST /jobs", b"\r\n"])
def test_a_client_that_drips_its_head_is_cut(
    made: Make, monkeypatch: pytest.MonkeyPatch, sent: bytes
):
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.05)
    with connected(made()) as connection:
        connection.sendall(sent)
        answers(connection)  # ends


def test_an_idle_client_cannot_stay_by_dripping_line_ends(
    made: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.05)
    gateway = made()

    def cut_while_it_drips() -> bool:
        with connected(gateway) as connection:
            connection.sendall(WHOLE)
            if not connection.recv(65_536):  # it was slower than the time that it has
                return False
            connection.sendall(b"\r\n")
            return answers(connection) == b""

    until(cut_while_it_drips)


def test_a_client_that_drips_its_body_is_cut(made: Make, requests: FakeRequests):
    gateway = made(body_timeout_s=0.05)
    with connected(gateway) as connection:
        connection.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        assert answers(connection).startswith(b"HTTP/1.1 408")
    assert not requests.appended


def test_a_body_without_end_is_answered_and_then_cut(made: Make):
    gateway = made(body_bytes_max=1_000)
    with connected(gateway) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"fff\r\n" + b" " * 4_095)
        assert answer(connection).startswith(b"HTTP/1.1 413")
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(b"\r\nfff\r\n" + b" " * 4_095)
            pytest.fail("it went on reading")
    assert works(gateway)


def test_chunks_of_one_byte_with_long_extensions_are_cut(made: Make):
    gateway = made(body_bytes_max=1_000)
    with connected(gateway) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            connection.sendall(b"1;" + b"x" * 1_000 + b"\r\n \r\n")
        pytest.fail("it went on reading")
    assert works(gateway)


def test_a_client_that_goes_away_gives_up_its_request(made: Make, requests: FakeRequests):
    requests.hold = True
    gateway = made()
    with connected(gateway) as connection:
        connection.sendall(WHOLE)
        until(lambda: len(requests.appended) == 1)
    until(lambda: requests.cancelled == 1)
    requests.hold = False
    assert works(gateway)


def test_a_client_that_does_not_read_is_cut(
    made: Make, requests: FakeRequests, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.05)
    requests.answer = Answer(Status.INVALID, "x" * 3_000_000)
    gateway = made()
    with connected(gateway) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(WHOLE * 4)
        until(lambda: not gateway.connections)
    requests.answer = Answer(Status.PROCESSED)
    assert works(gateway)


def test_an_idle_connection_is_closed_after_its_time(made: Make):
    gateway = made(idle_timeout_s=0.05)

    def answered_and_closed() -> bool:
        """Or closed before it has said anything, if this thread was slow."""
        with connected(gateway) as connection:
            connection.sendall(WHOLE)
            return answers(connection).startswith(b"HTTP/1.1 200")

    until(answered_and_closed)


def test_for_another_connection_the_longest_idle_one_is_closed(made: Make):
    gateway = made(connections_max=2)
    with connected(gateway) as first, connected(gateway) as second:
        for each in (first, second):
            each.sendall(WHOLE)
            answer(each)
        assert works(gateway)
        assert answers(first) == b""
        second.sendall(WHOLE)
        assert b" 200 " in answer(second)


def test_without_an_idle_connection_another_one_is_closed(made: Make, requests: FakeRequests):
    requests.hold = True
    gateway = made(connections_max=1)
    with connected(gateway) as first:
        first.sendall(WHOLE)
        until(lambda: len(requests.appended) == 1)
        with connected(gateway) as second:
            assert answers(second) == b""
        requests.hold = False
        assert b" 200 " in answer(first)


def test_at_the_end_what_can_be_answered_is(made: Make, requests: FakeRequests):
    requests.hold = True
    gateway = made()
    with connected(gateway) as connection, connected(gateway) as idle:
        connection.sendall(WHOLE)
        until(lambda: len(requests.appended) == 1)
        closing = threading.Thread(target=gateway.close)
        closing.start()
        assert answers(idle) == b""
        requests.hold = False
        assert b" 200 " in answers(connection)
        closing.join()


# --- TLS ----------------------------------------------------------------------------------------


class Tls:
    """Certificates in files, and clients that trust their authority."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.secret = Secret(folder, authority)
        self.authority = authority
        self.given = {
            "cert_file": str(folder / "tls.crt"),
            "key_file": str(folder / "tls.key"),
        }

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        context.check_hostname = False
        return context

    def serial(self, gateway: Gateway) -> str:
        with (
            connected(gateway) as raw,
            self.client().wrap_socket(raw) as connection,
        ):
            found = connection.getpeercert()
            assert found is not None
            return str(found["serialNumber"])


@pytest.fixture
def tls(tmp_path: Path, authority: trustme.CA) -> Tls:
    return Tls(tmp_path / "tls", authority)


def test_requests_are_taken_over_tls(made: Make, tls: Tls):
    gateway = made(**tls.given)
    client = HTTPSConnection("127.0.0.1", gateway.port, timeout=10, context=tls.client())
    for _ in range(2):
        client.request("POST", "/jobs/orders/in", "{}", {"Content-Type": "application/json"})
        assert client.getresponse().read()
    client.close()


def test_a_new_connection_has_the_certificate_of_its_moment(
    made: Make, tls: Tls, authority: trustme.CA
):
    gateway = made(**tls.given)
    before = tls.serial(gateway)
    key = Path(tls.given["key_file"])
    good = key.read_bytes()
    key.write_text("not yet")
    assert tls.serial(gateway) == before
    key.write_bytes(good)
    Secret(tls.secret.folder, authority)
    assert tls.serial(gateway) != before


def test_a_handshake_that_does_not_come_is_cut(
    made: Make, tls: Tls, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.05)
    gateway = made(**tls.given)
    with connected(gateway) as silent, connected(gateway) as plain:
        plain.sendall(WHOLE)
        assert b"HTTP" not in answers(plain)
        assert answers(silent) == b""
    until(lambda: not gateway.connections)
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 10.0)
    assert tls.serial(gateway)


def test_clients_show_a_certificate_where_that_is_asked_for(
    made: Make, tls: Tls, authority: trustme.CA
):
    gateway = made(**tls.given, client_ca_file=str(tls.secret.folder / "ca.crt"))
    with_certificate = tls.client()
    authority.issue_cert(WORKERS).configure_cert(with_certificate)
    for context, taken in ((with_certificate, True), (tls.client(), False)):
        client = HTTPSConnection("127.0.0.1", gateway.port, timeout=10, context=context)
        try:
            client.request("POST", "/jobs/orders/in", "{}", {"Content-Type": "application/json"})
            assert client.getresponse().status == 200
            assert taken
        except (OSError, ConnectionError):
            assert not taken
        finally:
            client.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_file": ""}, "ONYX_HTTP_KEY_FILE must be set"),
        ({"key_file": "/none"}, "cannot be read"),
        ({"client_ca_file": "/none"}, "ONYX_HTTP_CLIENT_CA_FILE=/none holds no certificate"),
    ],
)
def test_files_that_are_not_good_are_said(made: Make, tls: Tls, change: Any, message: str):
    with pytest.raises(SettingsError, match=message):
        made(**{**tls.given, **change})


def test_append_is_what_a_request_becomes(made: Make, requests: FakeRequests):
    assert works(made())
    assert isinstance(requests.appended[0], Append)
