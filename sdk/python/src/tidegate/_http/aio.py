"""Requests with asyncio, over connections which are kept for the next request."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import TYPE_CHECKING

from .address import Address
from .call import Lost
from .response import MAX_BODY, BadAnswer, Response, is_stream
from .sync import handshake, reason, unconnected

if TYPE_CHECKING:
    import ssl

_MAX_IDLE = 64
# Most bytes of a stream that wait for its reader. Above that, the connection is not read, so the server waits.
_MAX_WAITING = 256 * 1024


class Connection(asyncio.Protocol):
    """A connection for one request at a time."""

    def __init__(self) -> None:
        self.is_lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost: Lost | None = None
        self._waiting = 0
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            # Nothing was asked.
            self.close()
            return
        try:
            response.feed(data)
        except BadAnswer as error:
            self.fail(Lost(str(error), sent=True, lasting=True))
            return
        self._waiting += len(data)
        if self._waiting > _MAX_WAITING and is_stream(response) and self._transport is not None:
            self._transport.pause_reading()
            self._is_paused = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._response is not None and exc is None and self._response.has_head:
            self._response.end()
        text = reason(exc) if isinstance(exc, OSError) else "the connection was closed before the end of the answer"
        self.fail(Lost(text, sent=True))

    def fail(self, lost: Lost) -> None:
        """Ends the connection, and what waits for it."""
        self._lost = self._lost or lost
        self.close()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def is_open(self) -> bool:
        """Whether nothing has come since the last answer, also nothing that the loop has not read yet."""
        if self.is_lost or self._transport is None or not self._is_usable():
            return False
        number: int = self._transport.get_extra_info("socket").fileno()
        if number < 0 or not hasattr(select, "poll"):
            return number >= 0
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return not poll.poll(0)

    async def exchange(self, request: bytes, response: Response, timeout: float) -> None:
        """Sends a request, and waits for its answer: for the head of a stream, otherwise for all of it."""
        self._response = response
        if self._transport is not None:
            self._transport.write(request)
        timer = self._loop.call_later(timeout, self.fail, Lost("no answer in time", sent=True))
        try:
            while not (response.complete or is_stream(response)):
                await self._more()
        except BaseException:
            # The rest of the answer may still come, so no other request can use this connection.
            self.close()
            raise
        finally:
            timer.cancel()
        if response.complete:
            self._response = None

    async def read(self, response: Response, timeout: float) -> bytes:
        """Returns what comes next of a stream, nothing at the end."""
        timer: asyncio.TimerHandle | None = None
        try:
            while not (data := response.read_body()) and not response.complete:
                timer = timer or self._loop.call_later(timeout, self.fail, Lost("no answer in time", sent=True))
                await self._more()
        finally:
            if timer is not None:
                timer.cancel()
        self._waiting = 0
        if self._is_paused and self._transport is not None and self._is_usable():
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()  # plain: a method of asyncio

    async def _more(self) -> None:
        """Waits until something has come."""
        if self._lost is None:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        response = self._response
        if self._lost is not None and not (response is not None and response.complete):
            raise self._lost

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Stream:
    """An answer that may go on: `response` has its head, and all of it when it is no stream of events."""

    def __init__(self, connection: Connection, response: Response) -> None:
        self.response = response
        self._connection = connection

    async def read(self, timeout: float) -> bytes:
        """Returns what comes next, nothing at the end. Raises `Lost` when nothing comes for `timeout` seconds."""
        return await self._connection.read(self.response, timeout)

    def close(self) -> None:
        self._connection.close()


class Pool:
    """Connections to one server, for the tasks of one loop at a time."""

    def __init__(self, address: Address, cacert: str | None, *, max_body: int = MAX_BODY) -> None:
        self._address = address
        self._cacert = cacert
        self._max_body = max_body
        self._idle: deque[Connection] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def exchange(self, request: bytes, timeout: float) -> Response:
        """Sends a request and returns the answer. Raises `Lost` when there is none."""
        connection = self._idle_connection() or await self._connect(timeout)
        response = Response(self._max_body)
        await connection.exchange(request, response, timeout)
        if response.keep_alive and response.complete and not self._closed and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    async def open(self, request: bytes, timeout: float) -> Stream:
        """Sends a request whose answer is a stream, over a connection of its own."""
        connection = await self._connect(timeout)
        response = Response(self._max_body)
        await connection.exchange(request, response, timeout)
        return Stream(connection, response)

    def close(self) -> None:
        """Closes the idle connections, and the others when their answer has come."""
        self._closed = True
        self._drop()

    async def _connect(self, timeout: float) -> Connection:
        if self._closed:
            raise Lost("the client is closed", sent=False, lasting=True)
        address = self._address
        if address.encrypted and self._tls is None:
            from .tls import client_context

            self._tls = client_context(self._cacert)
        loop = asyncio.get_running_loop()
        name = address.host if address.encrypted else None
        connecting = loop.create_connection(Connection, address.host, address.port, ssl=self._tls, server_hostname=name)
        try:
            return (await asyncio.wait_for(connecting, timeout))[1]
        except asyncio.TimeoutError:
            raise Lost("no answer in time", sent=False) from None
        except OSError as error:
            if self._tls is not None and hasattr(error, "reason"):
                raise handshake(error) from None
            raise unconnected(error, address) from None

    def _idle_connection(self) -> Connection | None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The loop of these connections has ended.
            self._idle.clear()
            self._loop = loop
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                return connection
            connection.close()
        return None

    def _drop(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            if self._loop is not None and not self._loop.is_closed():
                connection.close()
