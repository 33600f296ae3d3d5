"""Reads streams of server-sent events from bytes, without any I/O."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .response import BadAnswer

MAX_EVENT = 16 * 1024 * 1024
# The server sends a comment every 15 s: a stream that is silent for so many seconds is lost.
SILENCE = 40.0


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
        self._rest = b""
        self._kind = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events that are complete now."""
        events: list[Event] = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._size += len(line)
            self._check()
            if line.rstrip(b"\r"):
                self._take(line.rstrip(b"\r").decode("utf-8", "replace"))
                continue
            if self._data:
                events.append(self._event())
            self._kind, self._data, self._size = "", [], 0
        self._check()
        return events

    def forget(self) -> None:
        """Drops the part of an event that has arrived: the stream was lost, and begins anew."""
        self._rest, self._kind, self._data, self._size = b"", "", [], 0

    def _take(self, line: str) -> None:
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
            return Event(self._kind or "message", json.loads("\n".join(self._data)))
        except (ValueError, RecursionError):
            raise BadAnswer("an event is not JSON") from None

    def _check(self) -> None:
        if self._size + len(self._rest) > MAX_EVENT:
            raise BadAnswer(f"an event is larger than {MAX_EVENT} bytes")
