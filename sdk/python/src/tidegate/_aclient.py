"""The client for asyncio. It is `tidegate.client` that makes it public."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from ._acalls import AsyncCalls
from ._http.address import Address, find_cacert, find_token, part
from ._http.aio import Pool
from ._http.call import Attempts, Lost, Pause
from ._http.events import SILENCE_TIMEOUT, Event
from ._http.plan import plan
from ._http.response import Response, is_stream
from ._http.watch import Watch
from .errors import TidegateError


class AsyncClient(AsyncCalls):
    """A client for one server, for asyncio. It takes what `Client` takes, and has the same calls, to be awaited.

    A call that is cancelled may have been carried out.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        cacert: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 5.0,
    ) -> None:
        self._address = Address.find(server)
        self._head = self._address.head(find_token(token))
        self._pool = Pool(self._address, find_cacert(cacert))
        self._timeout = timeout
        self._retry_for = retry_for

    @property
    def server(self) -> str:
        """The address of the server, as a URL."""
        return self._address.url

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        safe: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Sends a request and returns the JSON of its answer, as `Client.request` does."""
        try:
            answer = await self._call(
                method,
                path,
                query=query,
                body=body,
                key=idempotency_key,
                safe=method != "POST" or idempotency_key is not None if safe is None else safe,
                timeout=timeout,
            )
        except TidegateError as error:
            raise error.with_traceback(None) from None
        return answer

    def watch_workflow(self, id: str) -> AsyncIterator[Event]:
        """Yields what happens to a workflow, until it is removed: first how it is now, then each change.

        When the connection is lost it connects again, and goes on with what has changed since.
        """
        return self._watch(f"/v1/workflows/{part(id)}/events", id)

    def watch_worker(self, worker: str) -> AsyncIterator[Event]:
        """Yields what a worker should know, without end: whether to drain, and which of its leases are lost."""
        return self._watch(f"/v1/workers/{part(worker)}/events", None)

    async def close(self) -> None:
        """Closes the connections. Calls of other tasks that are under way end first."""
        self._pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._address.url!r})"

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: Any = None,
        key: str | None = None,
        safe: bool = True,
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Any:
        call = plan(method, path, query, body, key, safe, accept, timeout or self._timeout)
        request = call.request(self._address, self._head)
        attempts = Attempts(call, self._address, self._retry_for)
        while True:
            try:
                response = await self._pool.exchange(request, call.timeout)
            except Lost as lost:
                outcome = attempts.after_loss(lost, time.monotonic())
            else:
                outcome = attempts.after_answer(response, time.monotonic())
            if isinstance(outcome, TidegateError):
                raise outcome
            if not isinstance(outcome, Pause):
                return outcome
            await asyncio.sleep(outcome.seconds)

    async def _watch(self, path: str, workflow: str | None) -> AsyncIterator[Event]:
        watch = Watch(path, workflow, self._address, self._retry_for, self._timeout)
        while not watch.over:
            outcome: Response | Lost = Lost("the stream ended", sent=True)
            try:
                stream = await self._pool.open(watch.call().request(self._address, self._head), self._timeout)
                try:
                    if not is_stream(stream.response):
                        outcome = stream.response
                    else:
                        while not watch.over and (data := await stream.read(SILENCE_TIMEOUT)):
                            for event in watch.feed(data):
                                yield event
                finally:
                    stream.close()
            except Lost as lost:
                outcome = lost
            if not watch.over:
                found = watch.after(outcome, time.monotonic())
                if isinstance(found, Event):
                    yield found
                else:
                    await asyncio.sleep(found)
