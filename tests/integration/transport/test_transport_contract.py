"""What tasks may rely on, the same inside a process and between processes.

The first half runs over the local transport and over two gRPC transports on loopback, with and
without TLS; the second half breaks the network between two gRPC transports.
"""

import contextlib
import logging
import threading
import time

import grpc
import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs
from msgspec.structs import replace
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import Secret
from tests.support.servers.tcp_proxy import TcpProxy

from onyx.errors import SegmentError, SettingsError
from onyx.flow.batch import Batch
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId
from onyx.settings import TransportSettings
from onyx.transport import grpc_transport
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import PROTOCOL, Hello
from onyx.transport.grpc_channel import METHOD
from onyx.transport.grpc_transport import GrpcTransport
from onyx.transport.interface import Bounds, Channel, Control, ControlKind, LookUp, LookUpAnswer
from onyx.transport.local import LocalTransport

JOB = JobId("job")
VERSION = AllocationVersion(5)
CHANNEL = Channel(JOB, VERSION, PeerId("p"), PeerId("q"))
A, B = GroupId("group-a"), GroupId("group-b")
SETTINGS = TransportSettings(
    heartbeat_interval_s=0.1, heartbeat_timeout_s=10.0, reconnect_back_off_s=0.01
)


def eventually(condition, what="it") -> None:
    """Wait until a condition holds; the wait is long so that a busy machine fails no test."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {WAIT_S} s"
        time.sleep(0.002)


class Side:
    """One process: its transport and its callbacks."""

    def __init__(self, group: GroupId, transport) -> None:
        self.group = group
        self.transport = transport
        self.wakes = 0
        self.room = threading.Event()
        self.acks: list[tuple[int, int]] = []
        self.completions: list[tuple[int, int]] = []
        self.held: list = []
        self.returns: list = []
        self.lookups: list = []
        transport.on_room(self.room.set)

    def on_acks(self, job, version, acker, roots, values) -> None:
        self.acks += list(zip(roots.tolist(), values.tolist(), strict=True))

    def on_completions(self, job, version, target, roots, retries_max) -> None:
        self.completions += [(root, retries_max) for root in roots.tolist()]

    def on_held(self, job, version, target, roots) -> None:
        self.held += [(job, version, target, root) for root in roots.tolist()]

    def on_returns(self, job, version, target, trees, to_acker) -> None:
        self.returns += [(target, trees, to_acker)]

    def on_lookup(self, message) -> None:
        self.lookups.append(message)

    def on_append(self, append) -> None:
        raise AssertionError("nobody hands over a request here")

    def on_query(self, query) -> None:
        raise AssertionError("nobody asks here")

    def wake(self) -> None:
        self.wakes += 1

    def open(self, segments_max=1_000, version=VERSION, bytes_max=1 << 26):
        bounds = Bounds(segments_max, bytes_max)
        return self.transport.open_inbox(JOB, version, PeerId("q"), bounds, self.wake)


class World:
    """Two sides; `near` sends to `far`. Over the local transport both are the same process."""

    def __init__(self, near: Side, far: Side, proxy: TcpProxy | None = None) -> None:
        self.near, self.far, self.proxy = near, far, proxy

    def try_send(self, numbers, channel=CHANNEL) -> bool:
        item = numbers if isinstance(numbers, Control) else batch(numbers)
        return self.near.transport.send(self.far.group, channel, item)

    def send(self, numbers, channel=CHANNEL) -> None:
        eventually(lambda: self.try_send(numbers, channel), "room for a batch")

    def counters(self):
        total = self.near.transport.counters()
        if self.far is not self.near:
            total.add(self.far.transport.counters())
        return total


def batch(numbers) -> Batch:
    column = np.array(list(numbers), np.uint64)
    return Batch([{"n": int(number)} for number in column], column, column + np.uint64(1))


def contents(inbox) -> list:
    """What waits: numbers of segments and names of control items, in order."""
    found = []
    for delivery in inbox.take(10**9):
        if isinstance(delivery.item, Control):
            found.append(delivery.item.kind.name)
            continue
        numbers = [segment["n"] for segment in delivery.item.segments]
        assert delivery.item.roots.tolist() == numbers
        assert delivery.item.ids.tolist() == [number + 1 for number in numbers]
        found += numbers
    return found


def collect(inbox, count: int) -> list:
    """The next `count` segments or control items, as they come."""
    found: list = []

    def enough() -> bool:
        found.extend(contents(inbox))
        return len(found) >= count

    eventually(enough, f"arrival of {count} items")
    return found


@contextlib.contextmanager
def grpc_world(settings=SETTINGS, far_settings=None, through_proxy=False, certificates=None):
    """Two transports on loopback; `near` has the smaller group id and dials."""
    near = Side(A, GrpcTransport(settings, "tenancy", certificates))
    far = Side(B, GrpcTransport(far_settings or settings, "tenancy", certificates))
    proxy = TcpProxy(int(far.transport.address.rpartition(":")[2])) if through_proxy else None
    try:
        for side in (near, far):
            side.transport.start(side.group, side)
        near.transport.connect({B: proxy.address if proxy else far.transport.address})
        far.transport.connect({A: near.transport.address})
        yield World(near, far, proxy)
    finally:
        stop(near.transport, far.transport)
        if proxy is not None:
            proxy.close()


def stop(*transports) -> None:
    """Stop, and fail if that hangs."""
    thread = threading.Thread(target=lambda: [each.stop() for each in transports], daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "stop hangs"


@contextlib.contextmanager
def local_world(short_circuit=True):
    side = Side(A, LocalTransport(short_circuit))
    side.transport.start(A, side)
    yield World(side, side)
    stop(side.transport)


@pytest.fixture(
    params=[
        "local",
        "local without short circuit",
        pytest.param("grpc", marks=pytest.mark.server),
        pytest.param("grpc with TLS", marks=pytest.mark.server),
    ]
)
def world(request, tmp_path, authority):
    if request.param == "grpc":
        made = grpc_world()
    elif request.param == "grpc with TLS":
        made = grpc_world(certificates=Secret(tmp_path, authority).files())
    else:
        made = local_world(short_circuit=request.param == "local")
    with made as world:
        yield world


FLUSH, END = Control(ControlKind.FLUSH), Control(ControlKind.END, root=7, id=2**64 - 1)


def test_batches_and_control_items_arrive_in_order(world):
    inbox = world.far.open()
    for item in ([1, 2, 3], FLUSH, [4], [5, 6], END):
        world.send(item)
    assert collect(inbox, 8) == [1, 2, 3, "FLUSH", 4, 5, 6, "END"]
    assert world.far.wakes >= 1


@pytest.mark.parametrize(
    "item",
    [
        END,
        Control(ControlKind.WATERMARK, time_ms=-1),
        Control(ControlKind.WATERMARK, time_ms=None),
        Control(ControlKind.EPOCH, epoch=3, frontiers=((0, 17), (65_535, 2**40 - 1))),
    ],
    ids=lambda item: item.kind.name,
)
def test_a_control_item_keeps_what_it_tells(world, item):
    inbox = world.far.open()
    world.send(item)
    taken: list = []
    eventually(lambda: taken.extend(inbox.take(1)) or taken)
    assert taken[0].item == item
    assert taken[0].channel == CHANNEL


def test_batches_without_lineage_arrive_without(world):
    inbox = world.far.open()
    plain = Batch([{"n": 1}])
    eventually(lambda: world.near.transport.send(world.far.group, CHANNEL, plain))
    taken: list = []
    eventually(lambda: taken.extend(inbox.take(1)) or taken)
    assert taken[0].item == plain


def test_channels_into_one_inbox_each_keep_their_order(world):
    inbox = world.far.open(segments_max=50)
    sources = [PeerId(f"p{number}") for number in range(4)]

    def produce(source) -> None:
        for number in range(100):
            world.send([number], structs.replace(CHANNEL, source=source))

    threads = [threading.Thread(target=produce, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    found: dict[str, list[int]] = {source: [] for source in sources}

    def take() -> bool:
        for delivery in inbox.take(10):
            found[delivery.channel.source] += [each["n"] for each in delivery.item.segments]
        return sum(map(len, found.values())) == 400

    eventually(take)
    for thread in threads:
        thread.join(WAIT_S)
    assert found == {source: list(range(100)) for source in sources}


def test_a_consumer_that_does_not_take_stops_its_senders_and_bounds_what_waits(world):
    inbox = world.far.open(segments_max=100)
    world.send(range(10))
    sent = 10
    refused = 0
    while refused < 20:
        if world.try_send(range(sent, sent + 10)):
            sent += 10
        else:
            refused += 1
            time.sleep(0.002)
    assert sent <= 110
    eventually(lambda: inbox.waiting_segments() == sent)

    world.near.room.clear()
    assert collect(inbox, sent) == list(range(sent))
    assert world.near.room.wait(WAIT_S), "the sender is woken when there is room"
    world.send(range(sent, sent + 10))
    assert collect(inbox, 10) == list(range(sent, sent + 10))


def test_a_batch_larger_than_the_inbox_passes(world):
    inbox = world.far.open(segments_max=10)
    for start in (0, 500, 1000):
        world.send(range(start, start + 500))
        assert collect(inbox, 500) == list(range(start, start + 500))


def test_nothing_of_another_version_arrives(world):
    inbox = world.far.open()
    other = structs.replace(CHANNEL, version=AllocationVersion(4))
    for _ in range(10):
        assert not world.try_send([99], other)
    world.send([1])
    assert collect(inbox, 1) == [1]


def test_a_sender_may_come_before_the_inbox(world):
    assert not world.try_send([1])
    inbox = world.far.open()
    world.send([1])
    assert collect(inbox, 1) == [1]


def test_a_new_version_takes_over_from_the_old(world):
    old = world.far.open()
    world.send([1])
    eventually(lambda: old.waiting_segments() == 1)
    old.close()
    new = world.far.open(version=AllocationVersion(6))
    world.send([2], structs.replace(CHANNEL, version=AllocationVersion(6)))
    assert collect(new, 1) == [2]
    assert old.take(10) == []
    assert world.counters().dropped_version == 1


def test_acks_completions_and_held_trees_reach_the_handlers(world):
    near, far = world.near, world.far
    roots, values = np.array([1, 2], np.uint64), np.array([3, 2**64 - 1], np.uint64)
    send = near.transport
    eventually(lambda: send.send_acks(far.group, JOB, VERSION, PeerId("q"), roots, values))
    eventually(lambda: send.send_completions(far.group, JOB, VERSION, PeerId("q"), roots, 3))
    eventually(lambda: send.send_held(far.group, JOB, VERSION, PeerId("q"), roots))
    eventually(lambda: far.acks and far.completions and far.held)
    assert far.acks == [(1, 3), (2, 2**64 - 1)]
    assert far.completions == [(1, 3), (2, 3)]
    assert far.held == [(JOB, VERSION, "q", 1), (JOB, VERSION, "q", 2)]


def test_questions_about_states_and_answers_reach_the_handlers_of_their_group(world):
    near, far = world.near, world.far
    asked = LookUp(JOB, VERSION, PeerId("q"), near.group, PeerId("p"), 1, "t.s", b"keys", False)
    found = LookUpAnswer(JOB, VERSION, PeerId("p"), 1, b"states")
    near.transport.send_lookup(far.group, asked)
    eventually(lambda: asked in far.lookups)
    far.transport.send_lookup(near.group, found)
    eventually(lambda: found in near.lookups)
    near.transport.send_lookup(GroupId("nobody"), asked)  # it is lost


def test_an_unknown_group_is_refused_and_waits(world):
    assert not world.near.transport.send(GroupId("nobody"), CHANNEL, batch([1]))


def test_stop_is_idempotent(world):
    stop(world.near.transport, world.near.transport)


# Between two processes


@pytest.mark.server
def test_traffic_flows_both_ways_on_the_one_stream():
    with grpc_world() as world:
        here, there = world.near.open(), world.far.open()
        back = structs.replace(CHANNEL, source=PeerId("q2"))
        world.send([1])
        eventually(lambda: world.far.transport.send(A, back, batch([2])))
        assert collect(there, 1) == [1]
        assert collect(here, 1) == [2]
        assert world.counters().connects == 2


@pytest.mark.server
def test_columns_travel_with_their_schema_and_again_after_the_stream_broke():
    rows = Columns(pa.record_batch({"n": [1, 2], "name": ["a", None]}))
    others = Columns(pa.record_batch({"name": ["a", "b"]}))
    with grpc_world(through_proxy=True) as world:
        inbox = world.far.open()
        taken: list = []
        for number, segments in enumerate((rows, others, others, rows)):
            if number == 2:
                world.proxy.cut()
            item = Batch(segments)
            eventually(lambda item=item: world.near.transport.send(B, CHANNEL, item))
        eventually(lambda: taken.extend(inbox.take(100)) or len(taken) == 4)
        found = [each.item.segments.record_batch for each in taken]
        assert found == [each.record_batch for each in (rows, others, others, rows)]


@pytest.mark.server
@pytest.mark.parametrize("far", [2, 1], ids=["two machines", "one machine"])
def test_frames_are_compressed_between_machines_whatever_the_other_side_sends(monkeypatch, far):
    machines = iter((1, far))
    monkeypatch.setattr(grpc_transport, "this_machine", lambda: next(machines))
    zstd, none = replace(SETTINGS, compression="zstd"), SETTINGS
    pages = Batch([{"page": "x" * 100_000} for _ in range(20)])
    with grpc_world(zstd, none, through_proxy=True) as world:
        inbox, back = world.far.open(), world.near.open()
        for cut in (False, True):
            if cut:
                world.proxy.cut()
            for side, other, taking in ((world.near, B, inbox), (world.far, A, back)):
                eventually(lambda: side.transport.send(other, CHANNEL, pages))  # noqa: B023
                taken: list = []
                eventually(lambda: taken.extend(taking.take(100)) or taken)  # noqa: B023
                assert taken[0].item == pages
        sent = [side.transport.counters().sent_bytes for side in (world.near, world.far)]
        assert (sent[0] < 100_000) == (far == 2)
        assert sent[1] > 2_000_000


@pytest.mark.server
def test_a_batch_larger_than_a_frame_travels_in_pieces():
    small = replace(SETTINGS, frame_bytes_max=5_000, frame_bytes_target=2_000)
    with grpc_world(small) as world:
        inbox = world.far.open(segments_max=100_000)
        world.send(range(3_000))
        assert collect(inbox, 3_000) == list(range(3_000))


@pytest.mark.server
def test_frames_may_be_larger_than_grpcs_own_limit_when_the_settings_say_so():
    large = replace(SETTINGS, frame_bytes_max=12_000_000, link_bytes_max=30_000_000)
    with grpc_world(large) as world:
        inbox = world.far.open()
        world.send([1])
        pages = Batch([{"n": number, "page": "x" * 1_000_000} for number in range(9)])
        assert world.near.transport.send(B, CHANNEL, pages)
        taken: list = []
        eventually(lambda: taken.extend(inbox.take(100)) or len(taken) == 2)
        assert taken[1].item == pages


@pytest.mark.server
def test_a_segment_larger_than_a_frame_is_named():
    small = replace(SETTINGS, frame_bytes_max=5_000, frame_bytes_target=2_000)
    with grpc_world(small) as world:
        world.far.open()
        world.send([1])
        large = Batch([{"n": 1}, {"n": 2, "page": "x" * 6_000}])
        with pytest.raises(SegmentError, match="key 'page' takes 6003"):
            world.near.transport.send(B, CHANNEL, large)
        world.send([2])


def pump(world, inbox, count: int, disturb) -> list:
    """Send `count` numbered segments while the network is disturbed every now and then."""
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            for number in range(0, count, 10):
                world.send(range(number, number + 10))
                column = np.array([number], np.uint64)
                eventually(
                    lambda column=column: world.near.transport.send_acks(
                        B, JOB, VERSION, PeerId("q"), column, column
                    )
                )
                if number and number % (count // 5) == 0:
                    disturb()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce)
    thread.start()
    found = collect(inbox, count)
    thread.join(WAIT_S)
    assert not failures
    return found


@pytest.mark.server
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_cut_connection_loses_and_repeats_nothing(tls, tmp_path, authority):
    files = Secret(tmp_path, authority).files() if tls else None
    with grpc_world(through_proxy=True, certificates=files) as world:
        inbox = world.far.open(segments_max=500)
        world.send([10**6])
        assert collect(inbox, 1) == [10**6]
        found = pump(world, inbox, 5_000, world.proxy.cut)
        assert found == list(range(5_000))
        eventually(lambda: len(world.far.acks) >= 500)
        assert world.far.acks == [(number, number) for number in range(0, 5_000, 10)]
        assert contents(inbox) == []
        assert world.counters().reconnects > 0


@pytest.mark.server
def test_a_connection_cut_within_a_frame_loses_and_repeats_nothing():
    with grpc_world(through_proxy=True) as world:
        inbox = world.far.open(segments_max=500)
        found = pump(world, inbox, 5_000, lambda: world.proxy.cut_after(3_333))
        assert found == list(range(5_000))
        assert contents(inbox) == []
        assert world.proxy.cuts > 0


@pytest.mark.server
def test_what_was_sent_while_the_network_was_away_arrives_when_it_is_back():
    with grpc_world(through_proxy=True) as world:
        inbox = world.far.open(segments_max=1_000)
        world.send([0])
        assert collect(inbox, 1) == [0]
        world.proxy.hold()
        world.proxy.cut()
        for number in range(1, 50):
            assert world.try_send([number])
        world.proxy.release()
        assert collect(inbox, 49) == list(range(1, 50))


@pytest.mark.server
def test_a_damaged_frame_closes_the_stream_and_is_sent_again():
    with grpc_world(through_proxy=True) as world:
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
        world.proxy.damage_once(b"needle", b"noodle")
        column = np.array([2], np.uint64)
        needle = Batch([{"n": 2, "text": "needle"}], column, column + np.uint64(1))
        eventually(lambda: world.near.transport.send(B, CHANNEL, needle))
        taken: list = []
        eventually(lambda: taken.extend(inbox.take(10)) or taken)
        assert [each.item.segments for each in taken] == [[{"n": 2, "text": "needle"}]]
        assert world.proxy.damaged == 1
        assert world.far.transport.counters().bad_frames == 1
        world.send([3])
        assert collect(inbox, 1) == [3]


@pytest.mark.server
def test_a_silent_network_is_noticed_and_the_link_resumes():
    hasty = replace(SETTINGS, heartbeat_interval_s=0.05, heartbeat_timeout_s=0.5)
    with grpc_world(hasty, through_proxy=True) as world:
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
        world.proxy.hold()
        near, far = world.near.transport, world.far.transport
        eventually(lambda: near.counters().broken_streams and far.counters().broken_streams)
        world.proxy.cut()
        world.proxy.release()
        world.send([2])
        assert collect(inbox, 1) == [2]


@pytest.mark.server
def test_two_groups_that_part_one_after_the_other_do_so_without_a_word(caplog):
    caplog.set_level(logging.INFO)
    calm = replace(SETTINGS, reconnect_back_off_s=60.0)
    with grpc_world(calm) as world:
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
        world.far.transport.connect({})
        eventually(lambda: world.near.transport.counters().broken_streams, "the end of the stream")
        world.near.transport.connect({})
    assert not [each for each in caplog.messages if "no stream to group" in each]


@pytest.mark.server
def test_heartbeats_keep_an_idle_link_alive():
    hasty = replace(SETTINGS, heartbeat_interval_s=0.05, heartbeat_timeout_s=2.0)
    with grpc_world(hasty) as world:
        world.far.open()
        world.send([1])
        before = world.counters().received_frames
        eventually(lambda: world.counters().received_frames > before + 20)
        assert world.counters().broken_streams == 0
        assert set(world.near.transport.silent_s()) == {B}


@pytest.mark.server
@pytest.mark.parametrize("parting", [("near",), ("far",), ("near", "far")])
def test_groups_that_part_and_meet_again_begin_a_new_session(parting):
    with grpc_world() as world:
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
        for version in (6, 7, 8):
            inbox.close()
            for name in parting:
                side, other = getattr(world, name), world.near if name == "far" else world.far
                side.transport.connect({})
                side.transport.connect({other.group: other.transport.address})
            channel = structs.replace(CHANNEL, version=AllocationVersion(version))
            inbox = world.far.open(version=channel.version)
            world.send([version], channel)
            assert collect(inbox, 1) == [version]


@pytest.mark.server
def test_a_group_that_dials_too_early_is_let_in_when_the_other_has_heard_of_it():
    near = Side(A, GrpcTransport(SETTINGS, "tenancy"))
    far = Side(B, GrpcTransport(SETTINGS, "tenancy"))
    world = World(near, far)
    try:
        near.transport.start(A, near)
        near.transport.connect({B: far.transport.address})
        assert not world.try_send([1])
        far.transport.start(B, far)
        inbox = far.open()
        far.transport.connect({A: near.transport.address})
        world.send([1])
        assert collect(inbox, 1) == [1]
    finally:
        stop(near.transport, far.transport)


@pytest.mark.server
def test_stop_does_not_wait_for_a_network_that_is_away():
    with grpc_world(through_proxy=True) as world:
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
        world.proxy.hold()
        for number in range(2, 20):
            world.try_send([number])
        stop(world.near.transport, world.far.transport)


@pytest.mark.server
def test_a_port_in_use_is_said_clearly():
    with grpc_world() as world:
        taken = int(world.far.transport.address.rpartition(":")[2])
        with pytest.raises(SettingsError, match=r"cannot listen on 127.0.0.1:\d+ \(transport"):
            GrpcTransport(replace(SETTINGS, port=str(taken)), "tenancy")


HELLO = Hello("tenancy", A, B, 1, 1, 0, 0, 1_000_000)


def refusal(world, *first: bytes) -> str:
    """What the server answers to a client that sends these frames and then waits."""
    done = threading.Event()

    def requests():
        yield from first
        done.wait(WAIT_S)

    with grpc.insecure_channel(world.far.transport.address) as channel:
        call = channel.stream_stream(METHOD)(requests(), timeout=WAIT_S)
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()}"
        finally:
            done.set()
    return "ended"


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tenancy": "other"}, "is of tenancy 'other' and group group-b of another one"),
        ({"protocol": 1}, f"speaks protocol 1 and group group-b protocol {PROTOCOL}"),
        ({"target": GroupId("gone")}, "looks for group gone, but this is group-b"),
        ({"session": 0}, "names no session"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_with_the_reason(change, message):
    with grpc_world() as world:
        answer = refusal(world, encoder.hello_frame(replace(HELLO, **change)))
    assert answer.startswith("FAILED_PRECONDITION")
    assert message in answer


@pytest.mark.server
def test_a_group_that_shares_no_job_is_refused():
    hasty = replace(SETTINGS, heartbeat_timeout_s=2.0)
    with grpc_world(hasty) as world:
        stranger = replace(HELLO, group=GroupId("stranger"))
        assert "shares no job with group stranger" in refusal(world, encoder.hello_frame(stranger))


@pytest.mark.server
def test_a_refusal_is_logged_once_however_often_the_other_group_dials(caplog):
    old = encoder.hello_frame(replace(HELLO, protocol=1))
    with grpc_world() as world, caplog.at_level("WARNING", "onyx.transport"):
        for _ in range(3):
            assert "run the same version of Onyx on all workers" in refusal(world, old)
    logged = [record for record in caplog.records if "speaks protocol 1" in record.getMessage()]
    assert len(logged) == 1


@pytest.mark.server
def test_a_client_that_says_nothing_is_sent_away():
    hasty = replace(SETTINGS, heartbeat_timeout_s=0.3)
    with grpc_world(hasty) as world:
        assert refusal(world) == "DEADLINE_EXCEEDED no hello came"


@pytest.mark.server
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "5 to 4000000 are allowed"),
        (b"\x00" * 100, "damaged"),
        (encoder.hello_frame(HELLO), "a hello came on a stream that has begun"),
        (encoder.frame(7, 0, [encoder.close_packet(1)]), "packet 7 came where 1 was due"),
        (encoder.frame(1, 5, []), "5 packets were received"),
        (encoder.frame(1, 0, [encoder.item_packet(9, 1, FLUSH)]), "came on channel 9 where none"),
        (b"x" * 4_000_050, "5 to 4000000 are allowed"),
    ],
    ids=["empty", "garbage", "second hello", "gap", "too much received", "no channel", "too large"],
)
def test_a_bad_frame_closes_the_stream_with_the_reason_and_nothing_else(bad, message):
    with grpc_world() as world:
        world.near.transport.connect({})
        answer = refusal(world, encoder.hello_frame(HELLO), bad)
        assert message in answer
        assert world.far.transport.counters().bad_frames == 1
        world.near.transport.connect({B: world.far.transport.address})
        inbox = world.far.open()
        world.send([1])
        assert collect(inbox, 1) == [1]
