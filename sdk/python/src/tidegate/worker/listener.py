"""Hears at once from the server that leases are lost, and that the worker is to take no more jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from .._http.address import Address, part
from .._http.call import Lost
from .connection import InterruptibleConnection
from .settings import Settings

# The server sends a comment after 15 s without an event.
_SILENCE_TIMEOUT = 45.0
_PAUSE = 1.0
_MAX_EVENT = 64 * 1024


class Listener:
    """One thread, which calls `lost` with a lease and the reason, and `drain`."""

    def __init__(self, settings: Settings, lost: Callable[[str, str], None], drain: Callable[[], None]) -> None:
        self._uptime = settings.uptime
        self._connection = InterruptibleConnection(Address(settings.server), settings.token, settings.cacert)
        self._path = f"/v1/workers/{part(settings.name)}/events"
        self._lost = lost
        self._drain = drain

    def start(self) -> None:
        threading.Thread(target=self._run, name="tidegate-events", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self._read()
            except Exception:
                # The children report that the server does not answer. Later, answers to extensions name lost leases.
                pause.wait(_PAUSE)

    def _read(self) -> None:
        response = self._connection.stream(f"{self._path}?uptime={self._uptime()}", _SILENCE_TIMEOUT)
        rest = b""
        while True:
            rest += self._connection.read_stream(response)
            *events, rest = rest.split(b"\n\n")
            for event in events:
                self._on_event(event)
            if len(rest) > _MAX_EVENT:
                raise Lost("an event is too long", sent=True)

    def _on_event(self, event: bytes) -> None:
        name, data = "", ""
        for line in event.decode("utf-8", "replace").splitlines():
            field, _, value = line.partition(":")
            if field == "event":
                name = value.strip()
            elif field == "data":
                data += value.strip()
        if not data:
            return
        try:
            fields: dict[str, Any] = json.loads(data)
        except ValueError:
            return
        if name == "lease_lost":
            self._lost(str(fields.get("lease")), str(fields.get("reason", "unknown")))
        elif name == "drain" and fields.get("drain"):
            self._drain()
