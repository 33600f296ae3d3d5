"""Reads streams of server-sent events from bytes, without any I/O."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._json import MOST_DIGITS, decode
from .response import BadAnswer

MAX_EVENT = 16 * 1024 * 1024
# Seconds without a byte after which a stream is lost. The server sends a comment every 15 s.
SILENCE_TIMEOUT = 40.0


class Event(NamedTuple):
    """Something that happened.

    `kind` is `workflow`, `job` or `removed` for a workflow, `drain` or `lease_lost` for a worker, or a word that is
    new. `data` is what openapi.json calls a Workflow, JobEvent, RemovedEvent, DrainEvent or LeaseLostEvent.
    """

    kind: str
    data: Any


class EventReader:
    """Feed it the body of the stream as it arrives. `last_id` is what a client sends when it connects again."""

    __slots__ = ("_data", "_kind", "_rest", "_size", "last_id")

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id
        self._rest = bytearray()
        self._kind = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events that are complete now."""
        events: list[Event] = []
        rest, at = self._rest, 0
        # The rest of earlier data has no end of a line.
        end = len(rest)
        rest += data
        while (end := rest.find(b"\n", end)) >= 0:
            line = bytes(rest[at:end]).rstrip(b"\r")
            self._size += end - at
            at = end = end + 1
            self._check(0)
            if line:
                self._on_line(line.decode("utf-8", "replace"))
                continue
            if self._data:
                events.append(self._event())
            self._kind, self._data, self._size = "", [], 0
        del rest[:at]
        self._check(len(rest))
        return events

    def forget(self) -> None:
        """Drops the part of an event that has arrived: the stream was lost, and begins anew."""
        self._rest, self._kind, self._data, self._size = bytearray(), "", [], 0

    def _on_line(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            self._kind = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and value.isascii() and value.isprintable():
            self.last_id = value

    def _event(self) -> Event:
        try:
            value, is_long = decode("\n".join(self._data))
        except (ValueError, RecursionError):
            raise BadAnswer("an event is not JSON") from None
        if is_long:
            raise BadAnswer(f"an event has a number of more than {MOST_DIGITS} digits")
        return Event(self._kind or "message", value)

    def _check(self, more: int) -> None:
        if self._size + more > MAX_EVENT:
            raise BadAnswer(f"an event is larger than {MAX_EVENT} bytes")
