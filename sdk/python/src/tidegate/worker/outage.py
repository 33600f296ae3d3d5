"""The time in which the server cannot be used, as it is logged for operators."""

from __future__ import annotations

import time
from collections.abc import Callable

# Interval in seconds at which an outage is logged again: the first line may be far up.
_LOG_INTERVAL = 60.0


class Outage:
    """All children report an outage. It is logged once, then once a minute, with the time at which it began."""

    def __init__(self, server: str, log: Callable[[str], None]) -> None:
        self._server = server
        self._log = log
        self._what = self._text = self._since = ""
        self._status = 0
        self._next = 0.0

    def begin(self, text: str, status: int) -> None:
        """A call was refused with this status, or got no answer (0)."""
        what = "does not answer" if not status else "refuses calls"
        if status in (401, 403):
            what = "refuses the token of this worker"
        if (what, status) == (self._what, self._status):
            return
        if what != self._what:
            self._since = time.strftime("%H:%M:%S")
        self._what, self._status, self._text = what, status, text
        self._next = time.monotonic() + _LOG_INTERVAL
        # Some reasons name the setting to change.
        more = "" if status or "TIDEGATE_" in text else ". Start the server, or set TIDEGATE_SERVER to its address"
        if status in (401, 403):
            more = ". Jobs that run go on. For another token, start the worker again"
        self._log(f"{self._server} {what}: {text}{more}. Trying again")

    def end(self) -> None:
        if self._what:
            self._what = ""
            self._log("connected again")

    def tick(self) -> None:
        if self._what and time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOG_INTERVAL
            self._log(f"{self._server} {self._what} since {self._since}: {self._text}. Trying again")

    def shown(self) -> str | None:
        """Returns the kind of outage and its begin; `None` if there is none."""
        return f"the server {self._what} since {self._since}" if self._what else None
