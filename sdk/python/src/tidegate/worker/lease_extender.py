"""Extends the leases of all children once a second, and returns those of children that have ended."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from .._http.address import Address
from .._span import seconds
from .attempt import Ending, crashed, given_back, not_begun
from .connection import InterruptibleConnection
from .leases import HeldLease
from .settings import Settings

# Interval in seconds.
_EVERY = 1.0
_MAX_LEASES = 1000
# The pause before a job is claimed again whose own process has ended before it took the job.
_NOT_TAKEN_PAUSE = "5s"


class LeaseExtender:
    """One thread. `lost` is called with a lease that is over and the reason."""

    def __init__(
        self, settings: Settings, leases: Callable[[], Iterable[HeldLease]], lost: Callable[[str, str], None]
    ) -> None:
        self._settings = settings
        self._leases = leases
        self._lost = lost
        address = Address(settings.server)
        self._connection = InterruptibleConnection(address, settings.token, settings.cacert)
        # A connection that has fallen silent must not cost the leases: there is time for another try on a new one.
        self._timeout = min(10.0, settings.lease / 4)
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._orphans: list[tuple[float, Ending]] = []
        self._wanted: list[tuple[str, str, Callable[[dict[str, Any]], None]]] = []
        self._due: dict[str, float] = {}
        # Whether the worker stops, and the leases of which the server knows that.
        self._is_stopping = False
        self._knows_stopping: set[str] = set()

    def start(self) -> None:
        threading.Thread(target=self._run, name="tidegate-leases", daemon=True).start()

    def crashed(self, held: list[HeldLease], code: int, *, alone: bool) -> None:
        """Their process has ended, and this worker has not asked it to. `alone`: it had one job only."""
        self._end(crashed(one.lease, code, alone=alone) for one in held if one.runs)
        # Those that had ended already are not to blame.
        self.give_back([one for one in held if not one.runs], alone=alone)

    def give_back(self, held: list[HeldLease], *, alone: bool = False) -> None:
        """Gives leases back that this worker does not keep, so that their jobs run again at once."""
        self._end(given_back(one.lease) if one.begun else self._unrun(one, alone) for one in held)

    def stop(self) -> None:
        """Tells the server of all leases that the worker stops: those that end without a report are not lost then."""
        self._is_stopping = True
        self._wake.set()

    def extend(self, lease: str, span: str, done: Callable[[dict[str, Any]], None]) -> None:
        """Extends a lease for longer than the others. `done` is called with the `problem` if there is one, and why the
        lease is `lost`."""
        with self._lock:
            self._wanted.append((lease, span, done))
        self._wake.set()

    def _unrun(self, one: HeldLease, alone: bool) -> Ending:
        return given_back(one.lease, _NOT_TAKEN_PAUSE) if alone else not_begun(one.lease)

    def _end(self, endings: Iterable[Ending]) -> None:
        ends = time.monotonic() + self._settings.lease
        with self._lock:
            self._orphans += [(ends, ending) for ending in endings]
        self._wake.set()

    def flush(self, seconds: float) -> None:
        """Waits until the returned jobs have been reported, at the end of the process."""
        ends = time.monotonic() + seconds
        while self._orphans and time.monotonic() < ends:
            self._wake.set()
            time.sleep(0.01)

    def _run(self) -> None:
        while True:
            self._wake.wait(_EVERY)
            self._wake.clear()
            for step in (self._report, self._extend_wanted, self._extend):
                # The children say that the server is away, or that something else answers. Leases go on until their
                # end.
                # This thread must not end: the leases of all jobs would.
                with contextlib.suppress(Exception):
                    step()

    def _report(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._orphans = [(ends, ending) for ends, ending in self._orphans if ends > now]
            batch = self._orphans[:_MAX_LEASES]
        if not batch:
            return
        body = b'{"reports":[%s]}' % b",".join(ending.report for _, ending in batch)
        answer = self._connection.post("/v1/jobs/report", body, self._timeout)
        taken = {id(one) for one, item in zip(batch, answer["reports"], strict=True) if item["status"] != 503}
        with self._lock:
            self._orphans = [one for one in self._orphans if id(one) not in taken]
        if self._orphans and taken:
            self._wake.set()

    def _extend_wanted(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, []
        for lease, span, done in wanted:
            try:
                answer = self._post([lease], span, stopping=self._is_stopping)[0]
            except Exception as error:  # Whatever it is: a job waits for the answer.
                done({"problem": str(error)})
                continue
            if answer["status"] < 300:
                # From then on, the extensions of all leases reach further than this one.
                lasts = max(seconds(span) - self._settings.lease * 2 / 3, self._settings.lease / 3)
                self._due[lease] = time.monotonic() + lasts
                done({})
            else:
                lost = answer["error"].get("reason", "unknown") if answer["status"] in (404, 409) else None
                done({"problem": answer["error"].get("detail", ""), "lost": lost})

    def _extend(self) -> None:
        now = time.monotonic()
        due = {one.lease: max(one.due, self._due.get(one.lease, 0.0)) for one in self._leases()}
        self._due = due
        late = [
            lease for lease, at in due.items() if at <= now or (self._is_stopping and lease not in self._knows_stopping)
        ]
        # Those that a job has extended for longer are not shortened, and go alone.
        far = [lease for lease in late if due[lease] > now + self._settings.lease]
        near = [lease for lease in late if due[lease] <= now + self._settings.lease]
        for start in range(0, len(near), _MAX_LEASES):
            self._extend_for(near[start : start + _MAX_LEASES], self._settings.lease)
        for lease in far:
            self._extend_for([lease], due[lease] - now + self._settings.lease * 2 / 3)

    def _extend_for(self, leases: list[str], lasts: float) -> None:
        # The worker may begin to stop while the answer is on its way: then the server does not know it yet.
        stopping = self._is_stopping
        answers = self._post(leases, f"{round(lasts * 1000)}ms", stopping=stopping)
        next_due = time.monotonic() + lasts - self._settings.lease * 2 / 3
        for lease, item in zip(leases, answers, strict=True):
            # Any other status, such as 503: the lease is extended again in the next round.
            if item["status"] < 300:
                self._due[lease] = next_due
                if stopping:
                    self._knows_stopping.add(lease)
            elif item["status"] in (404, 409):
                # A lease that was reported a moment ago is in the table until its process has read the answer.
                self._due[lease] = next_due
                self._knows_stopping.add(lease)
                self._lost(lease, item["error"].get("reason", "unknown"))

    def _post(self, leases: list[str], span: str, *, stopping: bool) -> list[Any]:
        body: dict[str, Any] = {"leases": leases, "lease": span, "worker": self._settings.name}
        body["uptime"] = self._settings.uptime()
        if stopping:
            body["stopping"] = True
        answer = self._connection.post("/v1/jobs/extend", json.dumps(body).encode(), self._timeout)
        found: list[Any] = answer["leases"]
        return found
