"""A connection to the server for one thread, which another thread can cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any, cast

from .._http.address import Address
from .._http.call import Lost
from .._http.response import BadAnswer, Response
from .._http.sync import handshake, reason
from .._json import decode, long_number
from ..errors import Problem

# One read takes a small answer whole; one with 272 jobs needs a few.
_READ = 256 * 1024


class Refused(Exception):
    """The server refused a call. `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class InterruptibleConnection:
    """One connection, opened when it is needed. Calls are made by one thread at a time; `cut` may be called by any."""

    def __init__(self, address: Address, token: str | None, cacert: str | None) -> None:
        self._address = address
        self._cacert = cacert
        self._head = address.head(token)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    def post(self, path: str, body: bytes, timeout: float) -> Any:
        """Posts JSON and returns the answer's JSON. `timeout` is in seconds, for the whole call.

        Raises `Lost` when no answer came or the connection was cut, and `Refused` for a problem.
        """
        request = b"POST %s%s HTTP/1.1\r\n%scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
            self._address.prefix.encode(),
            path.encode(),
            self._head,
            len(body),
            body,
        )
        ends = time.monotonic() + timeout
        while True:
            is_new = self._socket is None
            connection = self._open(timeout)
            response = Response()
            try:
                self._exchange(connection, request, response, ends)
            except (OSError, Lost) as error:
                self._drop()
                if not is_new and not response.begun and not self._is_cut and time.monotonic() < ends:
                    # The server closes connections that were idle. All calls of a worker can be sent again.
                    continue
                raise error if isinstance(error, Lost) else Lost(reason(error), sent=True) from None
            except BadAnswer as error:
                self._drop()
                raise Lost(str(error), sent=True, lasting=True) from None
            if not response.keep_alive:
                self._drop()
            return _value(response)

    def stream(self, path: str, timeout: float) -> Response:
        """Begins to read a stream of events: call `more` with what it returns. `timeout` is for a piece, in seconds."""
        self._drop()
        connection = self._open(timeout)
        request = b"GET %s%s HTTP/1.1\r\n%s\r\n" % (self._address.prefix.encode(), path.encode(), self._head)
        response = Response()
        try:
            connection.sendall(request.replace(b"accept: application/json", b"accept: text/event-stream"))
        except OSError as error:
            self._drop()
            raise Lost(reason(error), sent=True) from None
        return response

    def read_stream(self, response: Response) -> bytes:
        """Returns the next bytes of the stream. Raises `Lost` at its end, and `Refused` if the server refused it."""
        connection = self._socket
        if connection is None:
            raise Lost("the connection was cut", sent=True)
        try:
            data = connection.recv(_READ)
            ended = not data or response.feed(data)
        except (OSError, BadAnswer) as error:
            self._drop()
            raise Lost(reason(error) if isinstance(error, OSError) else str(error), sent=True) from None
        if response.has_head and response.status >= 300 and (ended or response.end()):
            self._drop()
            _value(response)
        if ended:
            self._drop()
            raise Lost("the stream has ended", sent=True)
        return response.read_body() if response.status == 200 else b""

    def interrupt(self) -> None:
        """Ends the call that is under way, and all later ones. An answer that is on its way is still read: it may have
        jobs."""
        with self._lock:
            self._is_cut = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Without the method of sockets with TLS, which would end the reading, too.
                    socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def _exchange(self, connection: socket.socket, request: bytes, response: Response, ends: float) -> None:
        connection.settimeout(max(ends - time.monotonic(), 0.001))
        connection.sendall(request)
        while True:
            # One that sends a little now and then has no more time than one that is silent.
            left = ends - time.monotonic()
            if left <= 0:
                raise Lost("no answer in time", sent=True)
            connection.settimeout(left)
            data = connection.recv(_READ)
            if response.feed(data) if data else response.end():
                return
            if not data:
                raise Lost("the connection was closed before the end of the answer", sent=True)

    def _open(self, timeout: float) -> socket.socket:
        if self._socket is not None:
            return self._socket
        # A server that is away is noticed sooner than one that is slow to answer.
        connection = _connect(self._address, self._cacert, min(timeout, 10.0))
        with self._lock:
            if self._is_cut:
                connection.close()
                raise Lost("the connection was cut", sent=False)
            self._socket = connection
        connection.settimeout(timeout)
        return connection

    def _drop(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None


# The prefix of the types of the server's problems.
_OURS = "urn:tidegate:problem:"


def _connect(address: Address, cacert: str | None, timeout: float) -> socket.socket:
    try:
        plain = socket.create_connection((address.host, address.port), timeout)
    except OSError as error:
        raise Lost(reason(error), sent=False) from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.encrypted:
        return plain
    from .._http.tls import client_context

    try:
        return client_context(cacert).wrap_socket(plain, server_hostname=address.host)
    except OSError as error:
        plain.close()
        raise handshake(error) from None


def _value(response: Response) -> Any:
    try:
        value, is_long = decode(response.body)
    except (ValueError, RecursionError):
        raise Lost(f"it does not answer like Tidegate (status {response.status})", sent=True, lasting=True) from None
    if not 200 <= response.status < 300:
        # Something else may answer in its place for a while, and in JSON.
        if not isinstance(value, dict) or not str(cast("dict[str, Any]", value).get("type")).startswith(_OURS):
            raise Lost(f"it does not answer like Tidegate (status {response.status})", sent=True, lasting=True)
        hint = "Set TIDEGATE_TOKEN to a token from the server's tokens file" if response.status == 401 else ""
        raise Refused(Problem.from_fields(cast("dict[str, Any]", value), status=response.status, hint=hint))
    if is_long:
        _mark_long(value)
    return value


def _mark_long(answer: Any) -> None:
    """Jobs with a number that Python does not read say so: one of them must not spoil the others of an answer."""
    found: Any = cast("dict[str, Any]", answer).get("jobs") if isinstance(answer, dict) else None
    for job in cast("Any", found if isinstance(found, list) else []):
        number = long_number(job)
        if number is not None and isinstance(job, dict):
            job["unreadable"] = f"its params or inputs have {number}"
