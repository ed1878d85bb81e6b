"""A TCP proxy that cuts, holds and damages: the faults of a network, on demand."""

import contextlib
import socket
import threading


class TcpProxy:
    """Forwards connections to `port` until it is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._open = threading.Event()
        self._open.set()
        self._damage: tuple[bytes, bytes] | None = None
        self._cut_after: int | None = None
        self._to_ignore = 0
        self.connections = 0
        self.damaged = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection; new ones are accepted."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
            self.cuts += 1
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut_after(self, count: int) -> None:
        """Break every connection when so many more bytes have passed, in the middle of them."""
        with self._lock:
            self._cut_after = count

    def hold(self) -> None:
        """Let nothing pass, and keep the connections: as if the other machine were frozen."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def ignore_next(self) -> None:
        """Accept one more connection and never answer on it, as a server that is just starting."""
        with self._lock:
            self._to_ignore += 1

    def damage_once(self, before: bytes, after: bytes) -> None:
        """Replace the next occurrence of some bytes by as many others."""
        assert len(before) == len(after)
        self._damage = (before, after)

    def close(self) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_ignored(client):
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self.connections += 1
                self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _is_ignored(self, client: socket.socket) -> bool:
        with self._lock:
            if not self._to_ignore:
                return False
            self._to_ignore -= 1
            self._sockets.append(client)
            return True

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                self._open.wait()
                data, last = self._changed(data)
                sink.sendall(data)
                if last:
                    self.cut()
                    return
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _changed(self, data: bytes) -> tuple[bytes, bool]:
        with self._lock:
            if self._damage is not None and self._damage[0] in data:
                data = data.replace(*self._damage, 1)
                self._damage = None
                self.damaged += 1
            if self._cut_after is None:
                return data, False
            self._cut_after -= len(data)
            if self._cut_after > 0:
                return data, False
            rest, self._cut_after = self._cut_after, None
            return data[: len(data) + rest], True
