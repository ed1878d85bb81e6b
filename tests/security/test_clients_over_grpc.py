"""Attacked: inputs and states of workers, over gRPC: without a token, with one that opens something
else, with a certificate that is no worker's, and as a worker that hands a request over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest
import trustme
from immutables import Map
from msgspec.structs import replace
from tests.integration.transport.test_transport_contract import SETTINGS, A, Side, stop
from tests.support.clocks import ManualClock
from tests.support.log.memory_log import MemoryLog
from tests.support.log.replica_log import ReplicaLog
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.fake_requests import at_once

from onyx.base.seams import SystemClock
from onyx.cli.commands.append import _appender as command_appender
from onyx.cli.commands.append import append
from onyx.cli.commands.state import state
from onyx.cli.options import TokenPlace
from onyx.client.appender import Appender, NotTaken, NotYetTaken
from onyx.client.appending import appender
from onyx.client.submissions import submission
from onyx.errors import SettingsError, Unavailable, UserError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.model.canonical import to_mapping
from onyx.model.job import CatalogEntry, Job
from onyx.peer.router.inputs import InputAccess, InputTokens, RequestInput, RequestInputs
from onyx.replica.commands import KillJob
from onyx.replica.state import Replica
from onyx.requests.request import (
    NOBODY,
    Answer,
    Append,
    Caller,
    Form,
    PartOfRequest,
    Payload,
    Status,
    answered,
)
from onyx.requests.tokens import LOOK_INTERVAL_S, ClientToken, Tokens, metadata_of
from onyx.rights import of_its_author
from onyx.settings import ClientSettings, Settings, TransportSettings
from onyx.spark_source.writers import WriteTarget
from onyx.tls.files import GROUPS, CertificateFiles
from onyx.transport.appends.messages import decode_answer, decode_append, encode_append
from onyx.transport.appends.service import MANY, ONE, SERVICE
from onyx.transport.appends.streams import AppendStreams
from onyx.transport.frames.encoder import hello_frame
from onyx.transport.frames.packets import Hello
from onyx.transport.grpc_channel import METHOD, open_channel
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.state_asking import ask
from onyx.transport.state_queries import StateAnswer, StateQuery

ID = "5e0c7a52-0000-4000-8000-000000000001"
HELLO = Hello("tenancy", GroupId("other"), A, 1, 1, 0, 0, 1_000_000)
APPEND = Append("shop", "orders", Payload(Form.JSON_LINES, b"{}"))
QUERY = StateQuery("tenancy", A, PeerId("p"), JobId("j"), AllocationVersion(7), "w", b"k", 100)
RIGHT, OTHER = Caller(b"right"), Caller(b"other")
CLIENTS = "clients.test"


# --- which inputs are open ----------------------------------------------------------------------


class Cluster:
    """What a worker knows of a log with a job whose inputs have tokens."""

    def __init__(self, plugin: str, tokens: Path) -> None:
        self.replicas, self.clock = ReplicaLog(), ManualClock()
        self.log = MemoryLog().client()
        inputs = RequestInputs(lambda: self.replicas.new, self.log, self.clock)
        settings = of_its_author(Settings())
        self.access = InputAccess(inputs, InputTokens(settings, self.clock), at_once)
        self.entry = CatalogEntry(
            "orders", "input", plugin=plugin, options={"tokenFile": str(tokens)}
        )

    def submit(self, id: str = ID, name: str = "shop", **options: Any) -> None:
        entry = msgspec.structs.replace(self.entry, options={**self.entry.options, **options})
        job = Job(name, (("orders", "out"),), (entry, OUT))
        digest = self.log.put_chunk(msgspec.json.encode(to_mapping(job)))
        self.replicas.tell(submission(JobId(id), job, digest, "balanced"))

    def asked(self, caller: Caller, job: str = "shop", task: str = "orders") -> Status | str:
        """The status of a refusal, or the job that is open."""
        self.clock.advance(LOOK_INTERVAL_S)
        found = asyncio.run(self.access.find(job, task, True, caller))
        return found.status if isinstance(found, Answer) else found.job


OUT = CatalogEntry("out", "output", plugin="blackhole")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    found = tmp_path / "tokens"
    found.write_text("right\n")
    return found


@pytest.fixture(params=["requests", "http"])
def cluster(request: pytest.FixtureRequest, tokens: Path) -> Cluster:
    return Cluster(request.param, tokens)


def test_an_input_is_open_to_who_shows_its_token_and_to_workers(cluster: Cluster) -> None:
    cluster.submit()
    assert cluster.asked(NOBODY) is Status.UNAUTHENTICATED
    assert cluster.asked(OTHER) is Status.UNAUTHENTICATED
    assert cluster.asked(RIGHT) == ID
    assert cluster.asked(Caller(worker=True)) == ID


def test_a_token_that_is_taken_away_opens_no_more(cluster: Cluster, tokens: Path) -> None:
    cluster.submit()
    assert cluster.asked(RIGHT) == ID
    tokens.write_text("other\n")
    assert cluster.asked(RIGHT) is Status.UNAUTHENTICATED
    assert cluster.asked(OTHER) == ID


@pytest.mark.parametrize("caller", [NOBODY, OTHER], ids=["no-token", "other-token"])
@pytest.mark.parametrize(
    ("job", "task"), [("shop", "nope"), (ID, "nope"), ("5e0c", "orders"), ("s", "orders")]
)
def test_a_stranger_is_answered_as_if_the_job_were_not_there(
    job: str, task: str, caller: Caller, cluster: Cluster
) -> None:
    before = cluster.asked(caller, job, task)
    cluster.submit()
    assert cluster.asked(caller, job, task) == before
    cluster.replicas.tell(KillJob(JobId(ID)))
    assert cluster.asked(caller, job, task) == before


def test_a_token_of_a_job_does_not_open_the_one_of_the_same_name_behind_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.submit()
    assert cluster.asked(RIGHT) == ID
    cluster.replicas.tell(KillJob(JobId(ID)))
    (tmp_path / "others").write_text("other\n")
    second = "5e0c7a52-0000-4000-8000-000000000002"
    cluster.submit(second, tokenFile=str(tmp_path / "others"))
    assert cluster.asked(RIGHT) is Status.UNAUTHENTICATED
    assert cluster.asked(OTHER) == second


def test_a_part_that_is_handed_over_has_the_token_of_its_client(cluster: Cluster) -> None:
    part = replace(APPEND, part=PartOfRequest(0, b"d"), caller=RIGHT)
    assert decode_append(encode_append(part)).caller == RIGHT
    assert decode_append(encode_append(replace(APPEND, caller=RIGHT))).caller == NOBODY
    assert b"right" not in encode_append(replace(APPEND, caller=RIGHT))


def test_no_token_is_shown_with_a_request() -> None:
    shown = repr(replace(APPEND, caller=RIGHT))
    assert "right" not in shown
    assert "Caller(" in shown


def test_who_may_be_found_is_asked_without_reading_the_log(cluster: Cluster) -> None:
    cluster.submit()
    found = asyncio.run(cluster.access.find("shop", "orders", True, RIGHT))
    assert isinstance(found, RequestInput)
    opened = {each: cluster.access.opens(found, each) for each in (NOBODY, OTHER, RIGHT)}
    assert opened == {NOBODY: False, OTHER: False, RIGHT: True}


# --- what a client shows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (ClientSettings(), ""),
        (ClientSettings(token_file="{}/tokens"), "right"),
        (ClientSettings(token_env="TOKEN"), "of-variable"),
    ],
)
def test_a_client_shows_the_token_of_its_file_or_variable(
    settings: ClientSettings, shown: str, tokens: Path
) -> None:
    named = replace(settings, token_file=settings.token_file.format(tokens.parent))
    assert ClientToken(named, ManualClock(), {"TOKEN": "of-variable"})() == shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ClientSettings("{}/none"), "none cannot be read"),
        (ClientSettings("{}/empty"), "empty holds no token"),
        (ClientSettings("{}/odd"), "not printable ASCII"),
        (ClientSettings(token_env="NONE"), "variable NONE holds no token"),
        (ClientSettings("{}/tokens", "TOKEN"), "and not from both"),
    ],
)
def test_a_client_says_which_token_is_missing_and_shows_none(
    settings: ClientSettings, message: str, tokens: Path
) -> None:
    (tokens.parent / "empty").write_text("\n")
    (tokens.parent / "odd").write_text("secret\x01\n")
    named = replace(settings, token_file=settings.token_file.format(tokens.parent))
    with pytest.raises(UserError, match=message) as raised:
        ClientToken(named, ManualClock(), {"TOKEN": "of-variable"})()
    assert "secret" not in str(raised.value)


# --- over the wire ------------------------------------------------------------------------------


class Worker(Side):
    """A worker that keeps who has asked it."""

    def __init__(self, transport: GrpcTransport) -> None:
        super().__init__(A, transport)
        self.callers: list[Caller] = []
        self.held: dict[bytes, Future[Answer]] = {}
        """Answers to come, by the token that was shown."""

    def on_append(self, append: Append) -> Future[Answer]:  # type: ignore[override]
        self.callers.append(append.caller)
        if append.caller.token in self.held:
            return self.held[append.caller.token]
        if append.caller.token == b"bad":
            return answered(Answer(Status.UNAUTHENTICATED, "the token is another one"))
        return answered(Answer(Status.JOURNALLED, segments=1))

    def on_query(self, query: StateQuery) -> Future[StateAnswer]:  # type: ignore[override]
        future: Future[StateAnswer] = Future()
        future.set_result(StateAnswer(b"state", False))
        return future

    @property
    def address(self) -> str:
        return str(self.transport.address)


@contextlib.contextmanager
def worker(
    files: CertificateFiles | None = None,
    client_name: str = "",
    state_tokens: Tokens | None = None,
    tenancy: str = "tenancy",
) -> Iterator[Worker]:
    settings = replace(SETTINGS, tls_client_name=client_name)
    transport = GrpcTransport(settings, tenancy, files, state_tokens=state_tokens)
    found = Worker(transport)
    try:
        transport.start(A, found)
        yield found
    finally:
        stop(transport)


def called(
    address: str,
    data: bytes,
    metadata: list[tuple[str, str]],
    files: CertificateFiles | None = None,
    method: str = f"/{SERVICE}/{MANY}",
) -> bytes:
    with open_channel(address, [], files) as channel:
        call = channel.stream_stream(method)
        return bytes(next(call(iter([data]), timeout=WAIT_S, metadata=metadata)))


def code_of(error: pytest.ExceptionInfo[Any]) -> grpc.StatusCode:
    return error.value.code()  # type: ignore[no-any-return]


@pytest.mark.server
@pytest.mark.parametrize("method", [ONE, MANY])
@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ([], b""),
        ([("authorization", "Bearer right")], b"right"),
        ([("authorization", "bearer  right ")], b"right"),
        ([("authorization", "Basic right")], b""),
        ([("authorization", "right")], b""),
        ([("authorization", "Bearer right"), ("authorization", "Bearer wrong")], b""),
    ],
)
def test_the_token_of_a_call_is_in_its_metadata_once(
    metadata: list[tuple[str, str]], token: bytes, method: str
) -> None:
    with worker() as there:
        called(there.address, encode_append(APPEND), metadata, method=f"/{SERVICE}/{method}")
        part = encode_append(replace(APPEND, part=PartOfRequest(0, b"d"), caller=OTHER))
        called(there.address, part, metadata, method=f"/{SERVICE}/{method}")
    assert there.callers == [Caller(token), OTHER]


@pytest.mark.server
@pytest.mark.parametrize("shown", ["", "right", "wrong"])
def test_the_name_of_a_tenancy_is_told_to_nobody_who_asks_for_another_one(shown: str) -> None:
    """Whoever guesses learns no more than that the guess is wrong."""
    query = msgspec.structs.replace(QUERY, tenancy="guess")
    hello = hello_frame(replace(HELLO, tenancy="guess"))
    with worker(state_tokens=Tokens(SystemClock(), value="right"), tenancy="acme") as there:
        append = encode_append(replace(APPEND, tenancy="guess"))
        answer = decode_answer(called(there.address, append, metadata_of(shown)))[1]
        assert (answer.status, "'guess'" in answer.reason) == (Status.UNAVAILABLE, True)
        with pytest.raises((UserError, Unavailable)) as asked:
            ask(there.address, query, SETTINGS, None, WAIT_S, shown)
        with pytest.raises(grpc.RpcError) as stream:
            called(there.address, hello, metadata_of(shown), method=METHOD)
    told = (answer.reason, str(asked.value), str(stream.value))
    assert [each for each in told if "acme" in each] == []


@pytest.mark.server
@pytest.mark.parametrize(
    "opened",
    [
        lambda settings, address: appender(settings, "shop"),
        lambda settings, address: command_appender(settings, [address], "shop", "", "ours"),
        lambda settings, address: WriteTarget((address,), "shop", "", "ours").appender(),
    ],
    ids=["by-log", "command", "spark"],
)
def test_a_worker_of_another_tenancy_that_has_an_address_now_takes_nothing(
    opened: Callable[[Settings, str], Appender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a job of the same name, and what it says of that is not true of the client's."""
    with worker(tenancy="theirs") as there:
        peer, site = PeerId("p"), Map({"address": there.address})
        log = SimpleNamespace(
            replica=lambda: replace(Replica(), peers=(peer,), peer_sites=Map({peer: site})),
            close=lambda: None,
        )
        monkeypatch.setattr("onyx.client.appending.connect", lambda settings: log)
        with (
            opened(Settings(tenancy_id="ours"), there.address) as client,
            pytest.raises(NotYetTaken, match="of another tenancy than 'ours'"),
        ):
            client.append({"n": 1}, timeout_s=0.2)
    assert there.callers == []


@pytest.mark.server
def test_what_one_worker_says_of_its_tenancy_is_asked_of_the_next_and_handed_over_like_it() -> None:
    with worker(tenancy="theirs") as there, worker(tenancy="ours") as ours:
        workers = [there.address, ours.address]
        with Appender(workers, "shop", tenancy="ours") as client:
            assert client.append({"n": 1}, ack="journal").segments == 1
        part = replace(APPEND, part=PartOfRequest(0, b"d"))
        forwarded = [ours.transport.forward(each, part).result(WAIT_S) for each in workers]
    assert [each.status for each in forwarded] == [Status.UNAVAILABLE, Status.JOURNALLED]
    assert (len(there.callers), len(ours.callers)) == (0, 2)


class Certificates:
    """Of a worker, of a client, and of something else, all of one authority."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.worker = Secret(folder / "worker", authority).files()
        self.client = self._of(folder / "client", authority, CLIENTS)
        self.other = self._of(folder / "other", authority, "other.test")

    def _of(self, folder: Path, authority: trustme.CA, name: str) -> CertificateFiles:
        secret = Secret(folder, authority, (name,))
        return CertificateFiles(secret.settings(WORKERS), GROUPS, serves=False)


@pytest.fixture
def certificates(tmp_path: Path, authority: trustme.CA) -> Certificates:
    return Certificates(tmp_path, authority)


@pytest.mark.server
def test_a_certificate_of_clients_opens_what_clients_may_do_and_no_stream_of_workers(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [("authorization", "Bearer right")]
    part = encode_append(replace(APPEND, part=PartOfRequest(0, b"d"), caller=RIGHT))
    opens = Tokens(SystemClock(), value="right")
    with worker(certificates.worker, CLIENTS, opens) as there:
        called(there.address, encode_append(APPEND), shown, certificates.client)
        answer = decode_answer(called(there.address, part, shown, certificates.client))[1]
        assert answer.status is Status.DENIED
        with pytest.raises(grpc.RpcError) as stream:
            called(there.address, b"hello", shown, certificates.client, METHOD)
        assert code_of(stream) is grpc.StatusCode.PERMISSION_DENIED
        state = ask(there.address, QUERY, SETTINGS, certificates.client, WAIT_S, "right")
        assert state.data == b"state"
        for token, why in (("", "wants a bearer token"), ("wrong", "the token is another one")):
            with pytest.raises(UserError, match=f"refuses to answer: .*{why}"):
                ask(there.address, QUERY, SETTINGS, certificates.client, WAIT_S, token)
        assert called(there.address, part, [], certificates.worker)
        assert ask(there.address, QUERY, SETTINGS, certificates.worker, WAIT_S).data == b"state"
    assert there.callers == [RIGHT, Caller(worker=True)]
    assert "right" not in caplog.text


@pytest.mark.server
def test_states_are_shown_to_workers_alone_where_clients_have_no_tokens(
    certificates: Certificates,
) -> None:
    with (
        worker(certificates.worker, CLIENTS) as there,
        pytest.raises(UserError, match="to workers alone: clients need ONYX_STATE_TOKEN_FILE"),
    ):
        ask(there.address, QUERY, SETTINGS, certificates.client, WAIT_S, "right")


@pytest.mark.server
@pytest.mark.parametrize("name", ["", CLIENTS])
def test_a_certificate_for_something_else_opens_nothing(
    name: str, certificates: Certificates
) -> None:
    closed = certificates.other if name else certificates.client
    with worker(certificates.worker, name) as there:
        for method in (f"/{SERVICE}/{MANY}", METHOD):
            with pytest.raises(grpc.RpcError) as raised:
                called(there.address, encode_append(APPEND), [], closed, method)
            assert code_of(raised) is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(UserError, match=r"refuses to answer: its certificate carries"):
            ask(there.address, QUERY, SETTINGS, closed, WAIT_S)
    assert there.callers == []


@pytest.mark.server
def test_without_certificates_states_want_their_token_if_they_have_one() -> None:
    with worker(state_tokens=Tokens(SystemClock(), value="right")) as there:
        assert ask(there.address, QUERY, SETTINGS, None, WAIT_S, "right").data == b"state"
        with pytest.raises(UserError, match="wants a bearer token"):
            ask(there.address, QUERY, SETTINGS, None, WAIT_S)
    with worker() as there:
        assert ask(there.address, QUERY, SETTINGS, None, WAIT_S).data == b"state"


@pytest.mark.parametrize("name", [WORKERS, WORKERS.upper()])
def test_clients_have_a_name_that_no_worker_has(name: str, certificates: Certificates) -> None:
    settings = TransportSettings(tls_client_name=name)
    with pytest.raises(SettingsError, match="ONYX_TRANSPORT_TLS_CLIENT_NAME"):
        GrpcTransport(settings, "tenancy", certificates.worker)
    with pytest.raises(SettingsError, match="ONYX_TLS_SERVER_NAME"):
        GrpcTransport(settings, "tenancy", None)


@pytest.mark.server
def test_a_client_with_another_token_is_told_so_and_goes_on_with_a_new_one(
    tokens: Path,
) -> None:
    clock = ManualClock()
    tokens.write_text("bad\n")
    settings = ClientSettings(str(tokens))
    with worker() as there, Appender(there.address, "shop", clock=clock, client=settings) as client:
        with pytest.raises(NotTaken, match=r"another one: give this client .*--token-file"):
            client.append({"n": 1}, ack="journal")
        tokens.write_text("good\n")
        clock.advance(LOOK_INTERVAL_S)
        assert client.append({"n": 1}, ack="journal").segments == 1
    assert there.callers == [Caller(b"bad"), Caller(b"good")]


@pytest.mark.server
def test_what_was_sent_with_a_former_token_is_answered_still() -> None:
    shown = ["old"]
    held: Future[Answer] = Future()
    with worker() as there:
        there.held[b"old"] = held
        streams = AppendStreams(SETTINGS, None, lambda: shown[0])
        before = streams.send(there.address, APPEND)
        shown[0] = "new"
        assert streams.send(there.address, APPEND).result(WAIT_S).status is Status.JOURNALLED
        held.set_result(Answer(Status.PROCESSED))
        assert before.result(WAIT_S).status is Status.PROCESSED
        streams.close()


@pytest.mark.parametrize(
    ("arguments", "client"),
    [
        ({}, ClientSettings(token_env="OF_ALL")),
        ({"token_file": "f"}, ClientSettings(token_file="f")),
        ({"token_env": "V"}, ClientSettings(token_env="V")),
    ],
)
def test_a_command_takes_its_token_from_a_file_or_a_variable_and_not_from_an_argument(
    arguments: dict[str, str], client: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONYX_CLIENT_TOKEN_ENV", "OF_ALL")
    shown: list[ClientSettings] = []

    def asked(settings: Settings, *_: object) -> None:
        shown.append(settings.client)
        raise UserError("asked")

    monkeypatch.setattr("onyx.cli.commands.state.window_pages", asked)
    monkeypatch.setattr("onyx.cli.commands.append.appender", asked)
    for command in (
        lambda: state("job", "w", token=TokenPlace(**arguments)),
        lambda: append("job", token=TokenPlace(**arguments)),
    ):
        with pytest.raises(UserError, match="asked"):
            command()
    assert shown == [client, client]
