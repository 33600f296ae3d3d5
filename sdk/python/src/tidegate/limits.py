"""Limits of jobs, and rate limits that any code can ask for."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from ._http.address import DEFAULT, Address
from ._http.call import Call, Lost
from ._span import seconds
from .errors import DefinitionError, InvalidParam, NotTidegate, ServerUnavailable, Throttled

if TYPE_CHECKING:
    from . import api
    from ._http.sync import Pool
    from ._span import Span

P = ParamSpec("P")
R = TypeVar("R")

Value = str | int | bool
Entry = tuple[str, Value]

#: Where a server answers calls about rate limits, unless something else is said.
PORT = 8080
#: The most units of a request.
_MOST = 2**32 - 1


def limit(domain: str, /, *entries: Entry, hits: int = 1, **more: Value) -> api.LimitDefinition:
    """A rate limit of a job: each attempt takes ``hits`` units of the limit of ``domain`` with these entries.

    ``limit("vendor", tenant="$.tenant")``: a value that begins with ``$.`` is a param of the job. Entries whose keys
    are no names in Python are pairs: ``limit("vendor", ("user-id", "$.user"))``.
    """
    definition: api.LimitDefinition = {"domain": domain, "entries": _entries(entries, more)}
    if hits != 1:
        definition["hits"] = hits
    return definition


def concurrency(
    places: int, /, *entries: Entry, of: Literal["workflow", "queue", "all"] = "queue", **more: Value
) -> api.LimitDefinition:
    """A limit of concurrency: at most ``places`` jobs with these entries run at the same time, among those of the same
    workflow, queue or store."""
    definition: api.LimitDefinition = {"concurrency": places, "of": of}
    if pairs := _entries(entries, more):
        definition["entries"] = pairs
    return definition


def _entries(entries: Iterable[Entry], more: Mapping[str, Value]) -> list[list[str]]:
    return [[key, _text(value)] for key, value in (*entries, *more.items())]


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


class LimitExceeded(Throttled):
    """A rate limit has no room for ``retry_after`` seconds. In a job that does not catch it, the attempt is reported as
    throttled: it does not count, and the job runs again when that time is over."""

    def __init__(self, domain: str, entries: list[list[str]], retry_after: float) -> None:
        key = ", ".join(f"{key}={value}" for key, value in entries)
        super().__init__(retry_after, f"rate limit {domain} ({key}) has no room for {retry_after:g} s")
        self.domain, self.entries = domain, entries

    def __reduce__(self) -> tuple[Any, ...]:
        return LimitExceeded, (self.domain, self.entries, self.retry_after)


class RateLimits:
    """A client for the rate limits of a server: what Envoy asks for requests, for any code.

    ``server`` is the address of ``POST /json``; without it, ``TIDEGATE_LIMITS_SERVER``, or port 8080 of the machine in
    ``TIDEGATE_SERVER``.
    """

    def __init__(self, server: str | None = None, *, timeout: float = 5.0) -> None:
        from ._http.sync import Pool

        self._address = _address(server)
        self._head = self._address.head(None)
        self._timeout = timeout
        self._pool: Pool = Pool(self._address, os.environ.get("TIDEGATE_CACERT"))

    def take(  # plain: a public name
        self, domain: str, /, *entries: Entry, hits: int = 1, **more: Value
    ) -> None:
        """Takes units of a limit. Where the configuration has none for these entries, it does nothing.

        Raises:
            LimitExceeded: the limit has no room. Nothing was taken from other limits of the same entries.
            ServerUnavailable: no server answers. Whether the caller goes on then is for the caller to decide.
        """
        pairs = _entries(entries, more)
        left = self._ask(domain, pairs, hits)
        if left is not None:
            raise LimitExceeded(domain, pairs, left)

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def pause(self, seconds: float) -> None:
        """Sleeps before the next try to take units; in a job until it is cancelled, which ends the attempt."""
        from .context import running

        context = running()
        if context is None:
            time.sleep(seconds)
        elif context.wait_cancelled(seconds):
            raise Throttled(seconds, "cancelled while it waited for a rate limit")

    async def apause(self, seconds: float) -> None:
        """Sleeps as :meth:`pause` does, without blocking the event loop."""
        import asyncio

        await asyncio.sleep(seconds)

    def _ask(self, domain: str, entries: list[list[str]], hits: int) -> float | None:
        """None when there was room, otherwise in how many seconds there is."""
        if not 1 <= hits <= _MOST:
            # The server would read 0 as 1.
            raise InvalidParam(f"rate limit {domain!r}: hits is {hits}. Expected 1 to {_MOST}")
        descriptor = {"entries": [{"key": key, "value": value} for key, value in entries]}
        body = json.dumps({"domain": domain, "descriptors": [descriptor], "hitsAddend": hits}).encode()
        call = Call("POST", "/json", body, headers=b"", safe=False, accept="application/json", timeout=self._timeout)
        try:
            response = self._pool.exchange(call.request(self._address, self._head), self._timeout)
        except Lost as lost:
            raise ServerUnavailable(
                f"{self._address.url} does not answer: {lost.reason}. "
                "Start the server (tidegate), or set TIDEGATE_LIMITS_SERVER",
                sent=lost.sent,
            ) from None
        if response.status == 400:
            raise InvalidParam(
                f"rate limit {domain!r}: the server refused the request. A domain is not empty, and texts are UTF-8"
            )
        if response.status not in (200, 429):
            raise NotTidegate(
                f"{self._address.url}/json answered with {response.status}. Look at TIDEGATE_LIMITS_SERVER"
            )
        try:
            return _left(json.loads(response.body))
        except (LookupError, ValueError, RecursionError, TypeError, AttributeError):
            raise NotTidegate(
                f"{self._address.url}/json does not answer like Tidegate. Look at TIDEGATE_LIMITS_SERVER"
            ) from None


def _left(answer: Any) -> float | None:
    """Reads an answer: None when there was room, otherwise in how many seconds there is."""
    if answer["overallCode"] != "OVER_LIMIT":
        return None
    spans = [one.get("durationUntilReset", "1s") for one in answer["statuses"] if one.get("code") == "OVER_LIMIT"]
    left = max((float(re.sub("s$", "", one)) for one in spans), default=1.0)
    if not 0 <= left < float("inf"):
        raise ValueError(left)
    return left


def _address(server: str | None) -> Address:
    if server := server or os.environ.get("TIDEGATE_LIMITS_SERVER"):
        return Address(server)
    main = Address(os.environ.get("TIDEGATE_SERVER") or DEFAULT)
    host = f"[{main.host}]" if ":" in main.host else main.host
    return Address(f"http://{host}:{PORT}")


_here: ContextVar[RateLimits | None] = ContextVar("tidegate_limits", default=None)


def used() -> RateLimits | None:
    """The rate limits that functions with ``@limited`` ask in this context; None if :func:`using` has set none."""
    return _here.get()


@contextmanager
def using(other: RateLimits) -> Generator[RateLimits]:
    """Functions with ``@limited`` that are called in this context ask ``other``, unless they name one."""
    token = _here.set(other)
    try:
        yield other
    finally:
        _here.reset(token)


@functools.cache
def _default(process: int) -> RateLimits:
    # A child of fork() must not use the connections of its parent.
    return RateLimits()


def limited(
    domain: str, /, *entries: Entry, hits: int = 1, wait: Span = 0, limits: RateLimits | None = None, **more: Value
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes each call of a function take units of a rate limit first, together with requests through Envoy and with
    jobs.

    ``@limited("vendor", tenant="$.tenant", wait="30s")``: a value that begins with ``$.`` is an argument of the call.
    When the limit has no room, the call waits until it has, at most ``wait``; then it raises :class:`LimitExceeded`.
    Works for functions and async functions.
    """
    pairs = _entries(entries, more)
    max_wait = seconds(wait)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        for _, value in pairs:
            name = value[2:].split(".")[0]
            if value.startswith("$.") and name not in signature.parameters:
                raise DefinitionError(
                    f"@limited: {function.__qualname__} has no parameter '{name}', which '{value}' names"
                )

        def key(args: Any, kwargs: Any) -> list[list[str]]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return [[name, _lookup(bound.arguments, value)] for name, value in pairs]

        def limiter() -> RateLimits:
            return limits or _here.get() or _default(os.getpid())

        def try_take(wanted: list[list[str]], ends: float) -> float:
            """How long to wait before the next try; 0 when the units were taken."""
            left = limiter()._ask(domain, wanted, hits)  # pyright: ignore[reportPrivateUsage]
            if left is None:
                return 0.0
            if time.monotonic() + left > ends:
                raise LimitExceeded(domain, wanted, left)
            return max(left, 0.01)

        if inspect.iscoroutinefunction(function):
            import asyncio

            @functools.wraps(function)
            async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
                wanted, ends = key(args, kwargs), time.monotonic() + max_wait
                while pause := await asyncio.to_thread(try_take, wanted, ends):
                    await limiter().apause(pause)
                return await cast("Any", function)(*args, **kwargs)

            # It takes what the function takes, and adds nothing.
            cast("Any", later).__signature__ = signature
            return cast("Callable[P, R]", later)

        @functools.wraps(function)
        def now(*args: P.args, **kwargs: P.kwargs) -> R:
            wanted, ends = key(args, kwargs), time.monotonic() + max_wait
            while pause := try_take(wanted, ends):
                limiter().pause(pause)
            return function(*args, **kwargs)

        cast("Any", now).__signature__ = signature
        return now

    return decorate


def _lookup(arguments: Mapping[str, Any], value: str) -> str:
    if not value.startswith("$."):
        return value[1:] if value.startswith("$$.") else value
    found: Any = arguments
    for step in value[2:].split("."):
        found = cast("Mapping[str, Any]", found).get(step) if isinstance(found, Mapping) else getattr(found, step, None)
    if not isinstance(found, (str, int, bool)):
        raise InvalidParam(f"@limited: '{value}' is {found!r} here. Expected a text or a number")
    return _text(found)
