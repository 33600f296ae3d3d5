"""From the arguments of a call to what is sent."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from .. import _telemetry
from .._json import encode
from .._span import seconds
from ..errors import InvalidParam, TidegateError
from .address import header
from .address import query as written
from .call import Call

# The calls that create workflows.
_CREATIONS = ("/v1/workflows", "/v1/workflows:batch")


def plan(
    method: str,
    path: str,
    query: dict[str, object] | None,
    body: Any,
    key: str | None,
    safe: bool,
    accept: str,
    timeout: float,
) -> Call:
    """Returns the call. `timeout` is in seconds; the time that the call waits on the server is added to it."""
    if not (path.startswith("/") and path.isascii() and path.isprintable()) or " " in path or "#" in path:
        raise TidegateError(f"the path {path!r}: expected one such as /v1/workflows, with escapes")
    target, wait = path, None
    if query is not None:
        target += written(query)
        wait = query.get("wait")
    if isinstance(body, dict):
        claim: Any = body.get("claim") or body  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        wait = claim.get("wait") if isinstance(claim, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(wait, str):
        # The server says what is wrong with it.
        with suppress(InvalidParam):
            timeout += seconds(wait)
    if key is not None and path == _CREATIONS[0] and isinstance(body, dict) and not _fits_header(key):
        # The field says the same, and takes all characters.
        body, key = {**body, "idempotency_key": key}, None  # pyright: ignore[reportUnknownVariableType]
    sent = body if body is None or isinstance(body, bytes) else encode(body)
    headers = header("idempotency-key", key) if key is not None else b""
    if path in _CREATIONS and method == "POST":
        headers += b"".join(header(name, value) for name, value in _telemetry.headers().items())
    return Call(method, target, sent, headers=headers, safe=safe, accept=accept, timeout=timeout)


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and text == text.strip()


def watching(path: str, last_id: str | None, timeout: float) -> Call:
    """Returns the call for a stream of events, from after the event `last_id`."""
    headers = header("last-event-id", last_id) if last_id else b""
    return Call("GET", path, None, headers=headers, safe=True, accept="text/event-stream", timeout=timeout)


def creation_key(key: str | None, body: Any) -> str | None:
    """Returns an idempotency key for a creation: the caller's, or a new one when the definition has none either."""
    if key is not None or (isinstance(body, dict) and body.get("idempotency_key") is not None):  # pyright: ignore[reportUnknownMemberType]
        return key
    return os.urandom(16).hex()


def has_as_of(body: Any) -> bool:
    """Whether a retry or restart is only for jobs that had ended by a moment, so that it can be sent twice."""
    return isinstance(body, dict) and body.get("as_of") is not None  # pyright: ignore[reportUnknownMemberType]
