"""A call of the API: its request, what its answer means, and whether it is sent again. No I/O."""

from __future__ import annotations

from typing import Any, TypeGuard

from .._json import MOST_DIGITS, decode
from ..errors import NotFound, NotTidegate, Problem, ServerUnavailable, TidegateError
from .address import Address
from .response import Response

# The first pause before a call is sent again, and the longest, in seconds.
_PAUSE_MIN, _PAUSE_MAX = 0.05, 1.0
# A server that asks for a longer pause is not asked again.
_LONGEST = 86_400.0
_JSON = "application/json"
_TOKEN_HINT = "Set TIDEGATE_TOKEN to a token from the server's tokens file"


class Lost(Exception):
    """No answer came. `sent`: the request may have arrived. `lasting`: the next try would end in the same way."""

    def __init__(self, reason: str, *, sent: bool, lasting: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent
        self.lasting = lasting


class Call:
    """A request of the API. `safe` says whether it may be sent again when its outcome is not known."""

    __slots__ = ("accept", "body", "headers", "method", "safe", "target", "timeout")

    def __init__(
        self, method: str, target: str, body: bytes | None, *, headers: bytes, safe: bool, accept: str, timeout: float
    ) -> None:
        self.method = method
        self.target = target
        self.body = body
        self.headers = headers
        self.safe = safe
        self.accept = accept
        self.timeout = timeout

    def request(self, address: Address, head: bytes) -> bytes:
        """Returns the bytes to send."""
        first = f"{self.method} {address.prefix}{self.target} HTTP/1.1\r\n".encode("ascii")
        body = self.body
        if body is None:
            length = b"\r\n" if self.method in ("GET", "DELETE") else b"content-length: 0\r\n\r\n"
            return first + head + self.headers + length
        length = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        return first + head + self.headers + length + body


class Pause:
    """The pause in seconds after which the call is sent again."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Attempts:
    """How often a call is tried: until `retry_for` seconds after its first failure."""

    __slots__ = ("_address", "_call", "_ends", "_next", "_retry_for", "_was_sent")

    def __init__(self, call: Call, address: Address, retry_for: float) -> None:
        self._call = call
        self._address = address
        self._retry_for = retry_for
        self._ends: float | None = None
        self._next = _PAUSE_MIN
        self._was_sent = False

    def after_loss(self, lost: Lost, now: float) -> Pause | TidegateError:
        """Returns the pause before the next try, or the error to raise. `now` is in seconds of the monotonic clock."""
        self._was_sent |= lost.sent
        if not lost.lasting and (self._call.safe or not lost.sent):
            pause = self._pause(now, 0.0)
            if pause is not None:
                return pause
        return unavailable(self._call, self._address, lost, sent=self._was_sent)

    def after_answer(self, response: Response, now: float) -> Any:
        """Returns what the answer says; or the error to raise, or the pause before the next try."""
        status = response.status
        if 200 <= status < 300:
            return _value(self._call, self._address, response)
        error = refusal(self._address, response)
        if status == 503:
            nothing_done = isinstance(error, Problem) and error.nothing_done
            if self._call.safe or nothing_done:
                least = error.retry_after or 0.0 if isinstance(error, Problem) else 0.0
                pause = self._pause(now, least)
                if pause is not None:
                    self._was_sent |= not nothing_done
                    return pause
        elif self._was_sent and isinstance(error, NotFound) and self._call.method == "DELETE":
            # An earlier try removed it, and its answer was lost.
            return None
        elif self._was_sent and status == 409 and isinstance(error, Problem):
            hint = "An earlier try of this call, whose answer was lost, may have done it"
            return Problem.from_fields(error.fields, status=status, hint=hint)
        return error

    def _pause(self, now: float, least: float) -> Pause | None:
        if self._ends is None:
            self._ends = now + self._retry_for
        from random import uniform  # Few programs need it.

        # Jitter, so that the clients of a server that comes back do not call at the same moment.
        seconds = max(self._next * uniform(0.5, 1.0), min(least, _LONGEST))
        self._next = min(2 * self._next, _PAUSE_MAX)
        return Pause(seconds) if now + seconds < self._ends else None


def unavailable(call: Call, address: Address, lost: Lost, *, sent: bool) -> ServerUnavailable:
    """Makes the error for a call without an answer."""
    if not sent:
        advice = "" if lost.lasting else ". Start the server (tidegate), or set TIDEGATE_SERVER"
        if lost.lasting and lost.reason.startswith(f"{address.host}: "):
            # The name of the host has no address.
            advice = ". Look at TIDEGATE_SERVER"
        return ServerUnavailable(f"{address.url} does not answer: {lost.reason}{advice}")
    text = f"{address.url} did not answer {call.method} {call.target.partition('?')[0]}: {lost.reason}"
    if lost.lasting:
        text += ". Look at TIDEGATE_SERVER: it is the address of the API, by default http://127.0.0.1:7070"
    if call.method != "GET":
        text += ". The call may have been carried out"
    return ServerUnavailable(text, sent=True)


def refusal(address: Address, response: Response) -> TidegateError:
    """Makes the error for an answer that is no success."""
    status = response.status
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        fields = _decode(response.body)
        if _is_problem(fields):
            return Problem.from_fields(fields, status=status, hint=_TOKEN_HINT if status == 401 else "")
    return _strange(address, response, f"status {status}")


def _value(call: Call, address: Address, response: Response) -> Any:
    if response.status == 204:
        return None
    kind = response.headers.get("content-type", "")
    if not kind.startswith(call.accept):
        return _strange(address, response, kind or "no content type")
    if call.accept != _JSON:
        return response.body.decode("utf-8", "replace")
    value = _decode(response.body)
    if value is _LONG:
        what = f"a whole number of more than {MOST_DIGITS} digits, which Python does not read"
        return TidegateError(f"the answer of {address.url} has {what}")
    return _strange(address, response, "no JSON") if value is _NO_JSON else value


def _strange(address: Address, response: Response, what: str) -> NotTidegate:
    text = " ".join(response.body[:200].decode("utf-8", "replace").split())
    shown = "".join(character for character in text if character.isprintable())[:80]
    tail = f": {shown!r}" if shown else ""
    return NotTidegate(f"{address.url} does not answer like Tidegate ({what}){tail}. Look at TIDEGATE_SERVER")


def _is_problem(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and "code" in value


_NO_JSON, _LONG = object(), object()


def _decode(body: bytes) -> Any:
    try:
        value, is_long = decode(body)
    except (ValueError, RecursionError):
        return _NO_JSON
    return _LONG if is_long else value
