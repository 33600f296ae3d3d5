"""The clients: every call of the API, with the calls sent again that are safe to send again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._calls import Calls
from ._http.address import Address, find_cacert, find_token, part
from ._http.call import Attempts, Lost, Pause
from ._http.events import SILENCE_TIMEOUT, Event
from ._http.plan import plan
from ._http.response import Response, is_stream
from ._http.sync import Pool
from ._http.watch import Watch
from .errors import TidegateError

if TYPE_CHECKING:
    from ._aclient import AsyncClient

__all__ = ["AsyncClient", "Client", "Event"]


class Client(Calls):
    """A client for one server. Threads can use it at the same time.

    `server` is a URL or `host:port`; if left out, TIDEGATE_SERVER or `http://127.0.0.1:7070`. `token` is that of
    TIDEGATE_TOKEN if left out, and `cacert`, a PEM file of authorities to trust, that of TIDEGATE_CACERT.

    A try of a call takes at most `timeout` seconds, and as long as the call waits on the server besides. A call that
    got no answer, or that the server had no room for, is sent again until `retry_for` seconds after the first failure,
    if that is safe.
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

    def request(
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
        """Sends a request and returns the JSON of its answer.

        `body` is any JSON, or bytes that are JSON already. `safe` says whether it may be sent again when it is not
        known if it was carried out; if left out, everything but POST without an `idempotency_key` may.
        """
        try:
            answer = self._call(
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

    def watch_workflow(self, id: str) -> Iterator[Event]:
        """Yields what happens to a workflow, until it is removed: first how it is now, then each change.

        When the connection is lost it connects again, and goes on with what has changed since.
        """
        return self._watch(f"/v1/workflows/{part(id)}/events", id)

    def watch_worker(self, worker: str) -> Iterator[Event]:
        """Yields what a worker should know, without end: whether to drain, and which of its leases are lost."""
        return self._watch(f"/v1/workers/{part(worker)}/events", None)

    def close(self) -> None:
        """Closes the connections. Calls that are under way in other threads end first."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._address.url!r})"

    def _call(
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
                response = self._pool.exchange(request, call.timeout)
            except Lost as lost:
                outcome = attempts.after_loss(lost, time.monotonic())
            else:
                outcome = attempts.after_answer(response, time.monotonic())
            if isinstance(outcome, TidegateError):
                raise outcome
            if not isinstance(outcome, Pause):
                return outcome
            time.sleep(outcome.seconds)

    def _watch(self, path: str, workflow: str | None) -> Iterator[Event]:
        watch = Watch(path, workflow, self._address, self._retry_for, self._timeout)
        while not watch.over:
            outcome: Response | Lost = Lost("the stream ended", sent=True)
            try:
                stream = self._pool.open(watch.call().request(self._address, self._head), self._timeout)
                try:
                    if not is_stream(stream.response):
                        outcome = stream.response
                    else:
                        while not watch.over and (data := stream.read(SILENCE_TIMEOUT)):
                            yield from watch.feed(data)
                finally:
                    stream.close()
            except Lost as lost:
                outcome = lost
            if not watch.over:
                found = watch.after(outcome, time.monotonic())
                if isinstance(found, Event):
                    yield found
                else:
                    time.sleep(found)


def __getattr__(name: str) -> Any:
    # asyncio is loaded by those who use it.
    if name == "AsyncClient":
        from ._aclient import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
