"""The dialling side of a link: keeps one call to the other group open, again and again.

One daemon thread a link dials and reads; gRPC's own thread takes frames from the link and writes.
The synchronous API was chosen over `grpc.aio` after measuring: for 64 KiB frames both cost the same
CPU (about 105 us a frame, both ends), and aio would add a hop between its event loop and the
threads of the tasks, and one completion queue shared by everything in the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import grpc

from onyx.base.seams import Randomness
from onyx.settings import TransportSettings
from onyx.tls.files import CertificateFiles
from onyx.transport.frames.packets import FrameError, Hello
from onyx.transport.grpc_options import METHOD, channel_options
from onyx.transport.grpc_tls import open_channel, why_not
from onyx.transport.hello import read_hello
from onyx.transport.link import Link
from onyx.transport.stream import Stream

logger = logging.getLogger("onyx.transport")

BACK_OFF_MAX_S = 2.0
STOP_TIMEOUT_S = 2.0


class Dialler:
    """Dials `address` for a link until it is stopped."""

    def __init__(
        self,
        link: Link,
        address: str,
        settings: TransportSettings,
        certificates: CertificateFiles | None,
        randomness: Randomness,
    ) -> None:
        self._certificates = certificates
        self._link = link
        self._address = address
        self._settings = settings
        self._randomness = randomness
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._complaint: tuple[int, str] | None = None
        """Severity and text of what went wrong with the last call."""
        self._logged = ""
        name = f"onyx-link-{link.ends.there[:8]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to dial, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the call and dial no more. Returns at once; `join` waits."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def join(self) -> None:
        """Wait until the thread has ended, at most `STOP_TIMEOUT_S`."""
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        wait_s = self._settings.reconnect_back_off_s
        while not self._stopped.is_set():
            if self._dial():
                wait_s = self._settings.reconnect_back_off_s
            # Half of it at random: both ends of a broken network must not knock in step.
            self._stopped.wait(wait_s * (0.5 + 0.5 * self._randomness.random()))
            wait_s = min(BACK_OFF_MAX_S, 2 * wait_s)
            self._log_complaint()

    def _dial(self) -> bool:
        """One call from its beginning to its end; True if the handshake succeeded."""
        options = channel_options(self._settings)
        with open_channel(self._address, options, self._certificates) as channel:
            stream = Stream(channel.close)
            self._stream = stream
            # The time limit of the handshake: the monitor breaks only streams that are attached.
            watchdog = threading.Timer(self._settings.heartbeat_timeout_s, stream.close)
            watchdog.daemon = True
            watchdog.start()
            try:
                if self._stopped.is_set():
                    return False
                call = channel.stream_stream(METHOD)(self._requests(stream))
                return self._converse(stream, call, watchdog)
            except ValueError:
                # gRPC's word for a channel that `stop` or the watchdog has closed meanwhile.
                if not stream.closed.is_set():
                    raise
                return False
            finally:
                watchdog.cancel()
                self._link.detach(stream)

    def _requests(self, stream: Stream) -> Iterator[bytes]:
        yield self._link.hello()
        yield from self._link.outgoing(stream)

    def _converse(self, stream: Stream, call: Iterator[bytes], watchdog: threading.Timer) -> bool:
        attached = False
        try:
            hello = _checked_hello(next(call), self._link)
            watchdog.cancel()
            attached = self._link.attach(stream, hello)
            if attached:
                self._logged = ""
                for data in call:
                    self._link.receive(stream, data)
        except StopIteration:
            self._complaint = logging.INFO, "the other group ended the stream"
        except FrameError as error:
            self._link.note_bad_frame()
            self._complaint = logging.WARNING, str(error)
        except grpc.RpcError as error:
            self._lost(error, stream, attached)
        except Exception:
            logger.exception("the stream to group %s broke on a bug", self._link.ends.there)
        return attached

    def _lost(self, error: grpc.RpcError, stream: Stream, attached: bool) -> None:
        """gRPC reports a refused certificate only as a missing connection: find out more."""
        problem = None
        if not attached and _code(error) in _ORDINARY and not self._stopped.is_set():
            problem = why_not(self._address, self._certificates)
        if problem is not None:
            self._complaint = logging.WARNING, problem
        else:
            self._complaint = _severity(error), stream.reason or _reason(error)

    def _log_complaint(self) -> None:
        """Log what was wrong: once and not at each attempt, and only while the link is wanted. At
        the end of a job one of the two groups hangs up first."""
        complaint, self._complaint = self._complaint, None
        if complaint is not None and complaint[1] != self._logged and not self._stopped.is_set():
            severity, self._logged = complaint
            where = f"{self._link.ends.there} at {self._address}"
            logger.log(severity, "no stream to group %s: %s; dialling again", where, self._logged)


def _checked_hello(data: bytes, link: Link) -> Hello:
    """The hello of the other group. Raises FrameError unless it is for this link."""
    hello = read_hello(data, link.ends.tenancy, link.ends.here)
    if hello.group != link.ends.there:
        raise FrameError(f"group {hello.group} answered where {link.ends.there} was expected")
    return hello


_ORDINARY = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def _severity(error: grpc.RpcError) -> int:
    """A group that leaves or restarts is nothing to worry about; one that refuses us is."""
    return logging.INFO if _code(error) in _ORDINARY else logging.WARNING


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _reason(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
