"""Sending requests: one call to each worker, in which many requests are on their way.

A request that was sent has an answer, or the call breaks, and then it is not known what became of
it: it is answered as UNAVAILABLE, and may be sent again under its id. Workers hand over requests to
each other by this, and clients use it too.

An address says little of who is there: when a worker has died, one of another tenancy may be given
its address, and have a job and an input of the same names. So each request says which tenancy is
meant.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import grpc
from msgspec.structs import replace

from onyx.errors import SegmentError
from onyx.requests.request import Answer, Append, Status, answered
from onyx.requests.tokens import metadata_of
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.appends.messages import MANY, SERVICE, decode_answer, encode_append
from onyx.transport.grpc_channel import channel_options, open_channel

UNSENT_MAX = 1_024
"""Requests of one call that wait for their answers; more are refused as BUSY."""
HEAD_BYTES_MAX = 16_384
"""All of a request but its segments: names and an id, of limited length."""
RETRY_S = 0.2

Code = grpc.StatusCode
_FATAL = {
    Code.UNIMPLEMENTED: "it takes no requests: run the same version of Onyx everywhere",
    Code.UNAUTHENTICATED: "it does not take these certificates",
    Code.PERMISSION_DENIED: "it does not take requests with these certificates",
}


def no_token() -> str:
    """Workers show none."""
    return ""


class AppendStreams:
    """The calls to all workers that requests were sent to. Safe from any thread."""

    def __init__(
        self,
        settings: TransportSettings,
        certificates: CertificateFiles | None,
        token: Callable[[], str] = no_token,
        tenancy: str = "",
    ) -> None:
        """
        Args:
            token: gives the bearer token of this moment. A call shows the one of its beginning, so
                there is another call when the token has changed.
            tenancy: which is meant; empty: whichever it is.
        """
        self._token = token
        self._tenancy = tenancy
        self._settings = settings
        self._certificates = certificates
        self._lock = threading.Lock()
        self._calls: dict[str, _Call] = {}
        self._retired: list[_Call] = []
        """Calls with a former token, in which requests wait for their answers."""
        self._closed = False

    def send(self, address: str, append: Append) -> Future[Answer]:
        """Send a request to the worker at an address (`host:port`); never blocks on the network.
        The future has an answer unless the worker keeps it: the caller waits as long as it likes.

        Raises:
            UserError: there is no token where one was to be.
        """
        token = self._token()
        with self._lock:
            call = self._calls.get(address)
            if self._closed:
                return answered(Answer(Status.UNAVAILABLE, "this process ends"))
            if call is not None and call.token != token:
                call.retire()
                self._retired = [each for each in (*self._retired, call) if not each.ended]
            if call is None or call.broken:
                call = self._calls[address] = self._open(address, token)
        return call.send(replace(append, tenancy=self._tenancy))

    def close(self) -> None:
        """End all calls; what waits is answered as UNAVAILABLE."""
        with self._lock:
            self._closed = True
            calls = [*self._calls.values(), *self._retired]
        for call in calls:
            call.close()

    def _open(self, address: str, token: str) -> _Call:
        options = channel_options(self._settings)
        payload_bytes_max = self._settings.frame_bytes_max - HEAD_BYTES_MAX
        channel = open_channel(address, options, self._certificates)
        return _Call(address, channel, payload_bytes_max, token)


class _Call:
    """One call, until it breaks."""

    def __init__(
        self, address: str, channel: grpc.Channel, payload_bytes_max: int, token: str
    ) -> None:
        self.token = token
        self.ended = False
        """Whether nothing of it is left."""
        self._payload_bytes_max = payload_bytes_max
        self.broken = False
        self._address = address
        self._channel = channel
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Answer]] = {}
        self._number = 0
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        begin: Callable[..., Iterator[bytes]] = channel.stream_stream(f"/{SERVICE}/{MANY}")
        self._answers = begin(iter(self._queue.get, None), metadata=metadata_of(token))
        threading.Thread(target=self._read, name="onyx-answers", daemon=True).start()

    def send(self, append: Append) -> Future[Answer]:
        future: Future[Answer] = Future()
        size_bytes = len(append.payload.data)
        if size_bytes > self._payload_bytes_max:
            # gRPC would break the call, and with it all other requests on their way.
            reason = f"the request has {size_bytes:,} bytes where it is handed over to the worker "
            reason += f"that owns its partition, and may have {self._payload_bytes_max:,}"
            return answered(Answer(Status.INVALID, reason))
        with self._lock:
            if self.broken:
                return answered(self._unavailable("the connection was lost"))
            if len(self._waiting) >= UNSENT_MAX:
                reason = f"{UNSENT_MAX} requests to {self._address} wait for their answers"
                return answered(Answer(Status.BUSY, reason, RETRY_S))
            self._number += 1
            self._waiting[self._number] = future
            self._queue.put(encode_append(replace(append, number=self._number)))
        return future

    def retire(self) -> None:
        """Send nothing more; what was sent is answered still."""
        with self._lock:
            self.broken = True
            self._queue.put(None)

    def close(self) -> None:
        self._break(self._unavailable("this process ends"))
        self._channel.close()

    def _read(self) -> None:
        reason = "the connection was closed"
        fatal = False
        try:
            for data in self._answers:
                number, answer = decode_answer(data)
                with self._lock:
                    future = self._waiting.pop(number, None)
                if future is not None and future.set_running_or_notify_cancel():
                    future.set_result(answer)
        except SegmentError as error:
            reason = str(error)
        except grpc.RpcError as error:
            fatal, reason = _why(error)
        except Exception as error:  # of gRPC: a bare one when the channel is closed
            reason = str(error) or type(error).__name__
        status = Status.INVALID if fatal else Status.UNAVAILABLE
        self._break(Answer(status, f"the worker at {self._address}: {reason}", RETRY_S))
        self._channel.close()
        self.ended = True

    def _break(self, answer: Answer) -> None:
        with self._lock:
            self.broken = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
        self._queue.put(None)
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(answer)

    def _unavailable(self, reason: str) -> Answer:
        return Answer(Status.UNAVAILABLE, f"the worker at {self._address}: {reason}", RETRY_S)


def _why(error: grpc.RpcError) -> tuple[bool, str]:
    """Whether trying again is no use, and why the call has ended."""
    assert isinstance(error, grpc.Call)
    code = error.code()
    return code in _FATAL, _FATAL.get(code, f"{code.name}: {error.details()}")
