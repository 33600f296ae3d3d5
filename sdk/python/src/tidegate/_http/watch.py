"""A stream of events, over one connection after the other. No I/O."""

from __future__ import annotations

from ..errors import NotFound
from .address import Address
from .call import Attempts, Call, Lost, Pause
from .events import Event, EventReader
from .plan import watching
from .response import BadAnswer, Response


class Watch:
    """The state of a stream of events. `over` says whether the stream has ended for good."""

    def __init__(self, path: str, workflow: str | None, address: Address, retry_for: float, timeout: float) -> None:
        self.over = False
        self._path = path
        self._workflow = workflow
        self._address = address
        self._retry_for = retry_for
        self._timeout = timeout
        self._reader = EventReader()
        self._has_begun = False
        self._attempts: Attempts | None = None

    def call(self) -> Call:
        """Returns the call that begins the stream, or goes on with it."""
        self._reader.forget()
        call = watching(self._path, self._reader.last_id, self._timeout)
        self._attempts = self._attempts or Attempts(call, self._address, self._retry_for)
        return call

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events that are complete. Raises `Lost` when the data is no stream of events."""
        try:
            events = self._reader.feed(data)
        except BadAnswer as error:
            raise Lost(str(error), sent=True, lasting=True) from None
        if events:
            # The stream works: what fails from now on is a new failure.
            self._has_begun = True
            self._attempts = None
        self.over = any(event.kind == "removed" for event in events)
        return events

    def after(self, outcome: Response | Lost, now: float) -> Event | float:
        """Returns the pause before the next connection in seconds, or the last event. Raises an error that a retry
        does not repair."""
        attempts = self._attempts or Attempts(self.call(), self._address, self._retry_for)
        self._attempts = attempts
        found = attempts.after_loss(outcome, now) if isinstance(outcome, Lost) else attempts.after_answer(outcome, now)
        if isinstance(found, Pause):
            return found.seconds
        if isinstance(found, NotFound) and self._has_begun and self._workflow is not None:
            # The workflow was removed while no stream was connected.
            self.over = True
            return Event("removed", {"id": self._workflow})
        raise found
