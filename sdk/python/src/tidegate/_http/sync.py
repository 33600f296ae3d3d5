"""Requests over blocking sockets, which are kept for the next request."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from .address import Address
from .call import Lost
from .response import MAX_BODY, BadAnswer, Response, is_stream

if TYPE_CHECKING:
    import ssl

# The first read takes a small answer whole. Room for a large one would cost 30 us at each small one.
_READ, _READ_MORE = 16 * 1024, 64 * 1024
# Idle connections that are kept. More are closed when their answer has come.
_MAX_IDLE = 64


class Connection:
    """A connection for one request at a time."""

    __slots__ = ("_poll", "_socket", "_timeout")

    def __init__(self, address: Address, tls: ssl.SSLContext | None, timeout: float) -> None:
        self._timeout = timeout
        self._socket = _connect(address, tls, timeout)
        self._poll = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)

    def send(self, request: bytes, timeout: float) -> None:
        """Sends a request."""
        try:
            self.wait(timeout)
            self._socket.sendall(request)
        except OSError as error:
            # A request of which a part is missing is not carried out.
            raise Lost(reason(error), sent=False) from None

    def receive(self, ends: float, size: int) -> bytes:
        """Returns what arrives next, nothing at the end. `ends` is a moment of the monotonic clock."""
        if time.monotonic() >= ends:
            # One that sends a little now and then would else never be given up.
            raise Lost("no answer in time", sent=True)
        try:
            return self._socket.recv(size)
        except OSError as error:
            raise Lost(reason(error), sent=True) from None
        finally:
            # The next read, if there is one, has what is left of the time.
            left = ends - time.monotonic()
            if left < self._timeout - 0.05:
                self._timeout = max(left, 0.001)
                self._socket.settimeout(self._timeout)

    def wait(self, timeout: float) -> None:
        """Sets for how many seconds the next read may take."""
        if timeout != self._timeout:
            self._timeout = timeout
            self._socket.settimeout(timeout)

    def is_open(self) -> bool:
        """Whether nothing has come since the last answer, neither data nor the end of the connection."""
        if self._poll is not None:
            if not self._poll.poll(0):
                return True
        elif not select.select([self._socket], [], [], 0)[0]:
            return True
        # With TLS, there may be a message that is no data.
        self._timeout = 0.0
        try:
            self._socket.settimeout(0.0)
            self._socket.recv(1)
        except OSError as error:
            return isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError"
        return False

    def close(self) -> None:
        self._socket.close()


class Stream:
    """An answer that may go on: `response` has its head, and all of it when it is no stream of events."""

    def __init__(self, connection: Connection, request: bytes, timeout: float, max_body: int) -> None:
        self.response = Response(max_body)
        self._connection = connection
        try:
            connection.send(request, timeout)
            ends = time.monotonic() + timeout
            # An answer that is no stream is read whole.
            while not (is_stream(self.response) or self.response.complete):
                self._read(ends)
        except BaseException:
            connection.close()
            raise

    def read(self, timeout: float) -> bytes:
        """Returns what comes next, nothing at the end. Raises `Lost` when nothing comes for `timeout` seconds."""
        data = self.response.read_body()
        while not data and not self.response.complete:
            self._connection.wait(timeout)
            self._read(time.monotonic() + timeout)
            data = self.response.read_body()
        return data

    def close(self) -> None:
        self._connection.close()

    def _read(self, ends: float) -> None:
        try:
            self.response.feed(_more(self._connection, self.response, ends))
        except BadAnswer as error:
            raise Lost(str(error), sent=True, lasting=True) from None


class Pool:
    """Connections to one server. Threads can use it at the same time."""

    def __init__(self, address: Address, cacert: str | None, *, max_body: int = MAX_BODY) -> None:
        self._address = address
        self._cacert = cacert
        self._max_body = max_body
        # Taking from a deque and adding to it need no lock.
        self._idle: deque[Connection] = deque()
        self._tls: ssl.SSLContext | None = None
        self._process = os.getpid()
        self._closed = False

    def exchange(self, request: bytes, timeout: float) -> Response:
        """Sends a request and returns the answer. Raises `Lost` when there is none."""
        ends = time.monotonic() + timeout
        connection = self._idle_connection() or self._connect(timeout)
        response = Response(self._max_body)
        try:
            _send(connection, request, timeout, response)
            while not response.complete:
                response.feed(_more(connection, response, ends))
        except BadAnswer as error:
            connection.close()
            raise Lost(str(error), sent=True, lasting=True) from None
        except BaseException:
            # The rest of the answer may still come, so no other request can use this connection.
            connection.close()
            raise
        if response.keep_alive and not self._closed and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def open(self, request: bytes, timeout: float) -> Stream:
        """Sends a request whose answer is a stream, over a connection of its own."""
        return Stream(self._connect(timeout), request, timeout, self._max_body)

    def close(self) -> None:
        """Closes the idle connections, and the others when their answer has come."""
        self._closed = True
        self._drop()

    def _connect(self, timeout: float) -> Connection:
        if self._closed:
            raise Lost("the client is closed", sent=False, lasting=True)
        if self._address.encrypted and self._tls is None:
            from .tls import client_context

            self._tls = client_context(self._cacert)
        return Connection(self._address, self._tls, timeout)

    def _idle_connection(self) -> Connection | None:
        if self._process != os.getpid():
            # These connections are those of the process that this one was forked from.
            self._drop()
            self._process = os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_open():
                return connection
            connection.close()

    def _drop(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _send(connection: Connection, request: bytes, timeout: float, response: Response) -> None:
    try:
        connection.send(request, timeout)
    except Lost as lost:
        # A server that refuses a large request answers and closes before it has read all of it.
        response.keep_alive = False
        with suppress(Lost):
            response.feed(connection.receive(time.monotonic() + 1.0, _READ))
        if not response.begun:
            raise lost from None


def _more(connection: Connection, response: Response, ends: float) -> bytes:
    data = connection.receive(ends, _READ_MORE if response.begun else _READ)
    if not data and not response.end():
        raise Lost("the connection was closed before the end of the answer", sent=True)
    return data


def _connect(address: Address, tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    try:
        plain = socket.create_connection((address.host, address.port), timeout)
    except OSError as error:
        raise unconnected(error, address) from None
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tls.wrap_socket(plain, server_hostname=address.host) if tls is not None else plain
    except OSError as error:
        plain.close()
        raise handshake(error) from None


def reason(error: OSError) -> str:
    """Says in a few words what became of a connection."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if error.errno in _REASONS:
        return _REASONS[error.errno]
    text = str(error)
    if error.errno is None and f"[Errno {errno.ECONNREFUSED}]" in text:
        # asyncio puts the errors of all addresses of a name into one text.
        return "connection refused"
    return (error.strerror or text or type(error).__name__).lower()


def unconnected(error: OSError, address: Address) -> Lost:
    """Says why there is no connection."""
    if isinstance(error, socket.gaierror):
        return Lost(f"{address.host}: {error.strerror}", sent=False, lasting=error.errno != socket.EAI_AGAIN)
    return Lost(reason(error), sent=False)


def handshake(error: OSError) -> Lost:
    """Says why TLS could not begin."""
    text = getattr(error, "verify_message", None)
    if text:
        return Lost(f"its certificate is not trusted ({text}). Set TIDEGATE_CACERT", sent=False, lasting=True)
    word = getattr(error, "reason", None)
    if word == "WRONG_VERSION_NUMBER":
        return Lost("it does not speak TLS. Use http:// in TIDEGATE_SERVER", sent=False, lasting=True)
    if isinstance(word, str):
        return Lost(f"TLS failed ({word.lower().replace('_', ' ')})", sent=False, lasting=True)
    return Lost(reason(error), sent=False)


_REASONS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EPIPE: "connection reset",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to the host",
}
