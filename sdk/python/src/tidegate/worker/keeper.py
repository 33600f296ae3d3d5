"""Extends the leases of all children once a second, and gives back those of children that have ended."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from .._http.address import Address
from .attempt import Ending, failed, given_back
from .leases import HeldLease
from .line import Line
from .process import Child
from .settings import Settings

_EVERY = 1.0
_MAX_LEASES = 1000
# A job whose process ended so often while it ran has failed: it may be the reason. The server has the same bound.
_MAX_CRASHES = 4
_PAUSES = {2: "1s", 3: "5s"}
_REMEMBERED = 10_000


class WorkerCrashed(Exception):
    """The process that ran the job has ended, again and again."""


class Keeper:
    """One thread. `lost` is called with a lease that is over and the reason."""

    def __init__(
        self, settings: Settings, children: Callable[[], Iterable[Child]], lost: Callable[[str, str], None]
    ) -> None:
        self._settings = settings
        self._children = children
        self._lost = lost
        address = Address(settings.server)
        self._line = Line(address, settings.token, settings.cacert)
        # A connection that has fallen silent must not cost the leases: there is time for another try on a new one.
        self._timeout = min(10.0, settings.lease / 4)
        self._due: dict[str, float] = {}
        self._crashes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._orphans: list[tuple[float, Ending]] = []
        self._wake = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="tidegate-leases", daemon=True).start()

    def give_back(self, held: list[HeldLease], *, crashed: bool) -> None:
        """Their process has ended, so they are to run again at once. `crashed`: nobody has asked it to."""
        ends = time.monotonic() + self._settings.lease
        with self._lock:
            for one in held:
                self._orphans.append((ends, self._ending(one) if crashed else given_back(one.lease)))
        self._wake.set()

    def flush(self, seconds: float) -> None:
        """Waits until what was given back has been reported, at the end of the process."""
        ends = time.monotonic() + seconds
        while self._orphans and time.monotonic() < ends:
            self._wake.set()
            time.sleep(0.01)

    def _ending(self, one: HeldLease) -> Ending:
        if not one.begun:
            return given_back(one.lease)
        job = one.lease.rpartition("-")[0]
        crashes = self._crashes[job] = self._crashes.pop(job, 0) + 1
        while len(self._crashes) > _REMEMBERED:
            del self._crashes[next(iter(self._crashes))]
        if crashes < _MAX_CRASHES:
            return given_back(one.lease, _PAUSES.get(crashes))
        del self._crashes[job]
        return failed(one.lease, WorkerCrashed(f"the process that ran the job has ended {crashes} times while it ran"))

    def _run(self) -> None:
        while True:
            self._wake.wait(_EVERY)
            self._wake.clear()
            for step in (self._report, self._extend):
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
        answer = self._line.post("/v1/jobs/report", body, self._timeout)
        taken = {id(one) for one, item in zip(batch, answer["reports"], strict=True) if item["status"] != 503}
        with self._lock:
            self._orphans = [one for one in self._orphans if id(one) not in taken]
        if self._orphans and taken:
            self._wake.set()

    def _extend(self) -> None:
        now = time.monotonic()
        due: dict[str, float] = {}
        for child in self._children():
            for one in child.leases():
                due[one.lease] = max(one.due, self._due.get(one.lease, 0.0))
        self._due = due
        late = [lease for lease, at in due.items() if at <= now]
        for start in range(0, len(late), _MAX_LEASES):
            leases = late[start : start + _MAX_LEASES]
            body: dict[str, Any] = {
                "leases": leases,
                "lease": f"{round(self._settings.lease * 1000)}ms",
                "worker": self._settings.name,
            }
            answer = self._line.post("/v1/jobs/extend", json.dumps(body).encode(), self._timeout)
            next_due = time.monotonic() + self._settings.lease / 3
            for lease, item in zip(leases, answer["leases"], strict=True):
                if item["status"] < 300:
                    due[lease] = next_due
                elif item["status"] in (404, 409):
                    # What was reported a moment ago is in the table until its process has read the answer.
                    due[lease] = next_due
                    self._lost(lease, item["error"].get("reason", "unknown"))
