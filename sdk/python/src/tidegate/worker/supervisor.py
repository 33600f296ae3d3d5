"""The parent: starts the processes that run jobs, keeps their leases, and stops them."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import signal
import threading
import time
from typing import Any, NamedTuple

from .attempt_histogram import AttemptHistogram
from .console import Console
from .health import Health, metrics
from .lease_extender import LeaseExtender
from .leases import HeldLease
from .listener import Listener
from .outage import Outage
from .process import KILL_AFTER, Child, ChildMessage
from .reload import Reload, places
from .settings import Settings, reserve

# The pause before a process that ended unasked is started again: doubled each time, until one has lived for a while.
_PAUSES = 0.1, 10.0
_LONG_LIFE = 10.0
# How long a job may go on after its timeout, before another process takes the place of its own.
_HANGS_AFTER = 5.0
# Most jobs that run at once in a process for one job; each of them may end its process.
_MAX_ALONE = 4
# Statuses that a retry does not change, and statuses that end the worker as long as no call has succeeded.
_WRONG, _REFUSED = (400, 409, 413, 422), (401, 403, 404)
# The place of a process that is started for one job.
_NO_PLACE = -1
# Exit codes: the command or the program is wrong; the server refuses the worker.
WRONG, REFUSED = 2, 69


class Signalled(NamedTuple):
    number: int


class Drained(NamedTuple):
    pass


class Lost(NamedTuple):
    lease: str
    reason: str


class Changed(NamedTuple):
    file: str


class Extended(NamedTuple):
    child: Child
    answer: dict[str, Any]


class Supervisor:
    """Runs until a signal, a drain or an error ends the worker; `run` returns the exit code."""

    def __init__(self, settings: Settings, console: Console, *, reload: bool = False) -> None:
        self._settings = settings
        self._console = console
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._children: list[Child] = []
        self._starts: dict[int, float] = {}
        self._failures = [0] * settings.processes
        self._lease_extender = LeaseExtender(settings, self._leases, self._lost)
        # Jobs that are to run alone, and when their leases are to be extended.
        self._suspects: list[tuple[Any, float]] = []
        # Leases of jobs that have timed out, and when their processes are replaced if they go on.
        self._overdue: dict[str, float] = {}
        self._listener = Listener(settings, self._lost, lambda: self._events.put(Drained()))
        self._reload = Reload(lambda file: self._events.put(Changed(file))) if reload else None
        self._figures = AttemptHistogram()
        # The thread that serves the figures reads them.
        self._lock = threading.Lock()
        self._claims = self._again = self._restarts = 0
        self._is_ready = False
        self._is_connected = False
        self._outage = Outage(settings.server, console.log)
        self._stopping = False
        self._signals = 0
        self._code: int | None = None

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Only a simple queue can be put to at any moment.
            signal.signal(number, lambda number, _: self._events.put(Signalled(number)))
        for place in range(self._settings.processes):
            self._start(place)
        self._lease_extender.start()
        self._listener.start()
        if self._reload is not None:
            self._reload.watch(places(self._settings.target))
            self._reload.start()
        while self._children or (not self._stopping and (self._starts or self._reload)):
            with contextlib.suppress(queue.Empty):
                self._on_event(self._events.get(timeout=self._pause()))
            self._tick()
        self._lease_extender.flush(2.0)
        if self._is_ready:
            self._console.summary(self._figures)
        return self._code or 0

    def serve(self, host: str, port: int) -> int:
        """Serves health and figures; returns the port. Raises OSError when it is not free."""
        health = Health(port, host, self._healthy, self._metrics)
        health.start()
        return health.port

    def _lost(self, lease: str, reason: str) -> None:
        self._events.put(Lost(lease, reason))

    def _leases(self) -> list[HeldLease]:
        """All leases of this worker. The thread that extends them calls it."""
        waiting = [HeldLease(claimed["lease"], due, begun=False) for claimed, due in list(self._suspects)]
        return [*waiting, *(one for child in list(self._children) for one in child.leases())]

    def _start(self, place: int) -> None:
        self._children.append(Child(place, self._settings, self._events))

    def _pause(self) -> float:
        """Until something is to be done without an event."""
        now = time.monotonic()
        moments = [
            *self._starts.values(),
            *self._overdue.values(),
            *(child.kill_at for child in self._children if child.kill_at is not None),
        ]
        return max(min([1.0, *(moment - now for moment in moments)]), 0.0)

    def _tick(self) -> None:
        now = time.monotonic()
        self._console.tick()
        if not self._stopping:
            self._outage.tick()
        for place, moment in list(self._starts.items()):
            if moment <= now and not self._stopping:
                del self._starts[place]
                self._start(place)
        for lease, moment in list(self._overdue.items()):
            if moment <= now:
                del self._overdue[lease]
                self._replace_if_it_runs(lease)
        for child in self._children:
            child.flush()
            if child.kill_at is not None and child.kill_at <= now:
                child.kill_at = None
                child.kill()

    def _on_event(self, event: Any) -> None:
        if isinstance(event, ChildMessage):
            if event.message is None:
                self._ended(event.child)
            else:
                self._on_message(event.child, event.message)
        elif isinstance(event, Extended):
            event.child.send(event.answer)
        elif isinstance(event, Lost):
            if event.reason == "timed_out":
                self._overdue.setdefault(event.lease, time.monotonic() + _HANGS_AFTER)
            for child in self._children:
                child.send({"lost": event.lease, "reason": event.reason})
        elif isinstance(event, Signalled):
            self._signalled(signal.Signals(event.number).name)
        elif isinstance(event, Drained):
            if not self._stopping:
                self._console.log(f"drain: the worker {self._settings.name} takes no more jobs")
                self._stop(None)
        elif isinstance(event, Changed) and not self._stopping:
            self._console.log(f"{event.file} has changed: the program is loaded again")
            self._starts.clear()
            for child in list(self._children):
                self._retire(child, self._settings.grace)
            for place in range(self._settings.processes):
                self._start(place)

    def _on_message(self, child: Child, message: dict[str, Any]) -> None:
        if "figures" in message:
            with self._lock:
                ended, bad = self._figures.merge(message["figures"])
            self._claims += message["claims"]
            self._again += message["again"]
            child.running = message["running"]
            if ended:
                self._console.jobs(message["lines"], ended, bad)
        elif "ready" in message:
            self._ready(child, message["ready"])
        elif "error" in message:
            if self._reload is not None:
                # The next change may be better.
                self._reload.watch(message["files"])
                self._console.log(message["error"])
                child.retiring = True
            elif not self._is_ready:
                self._fail(message["error"], WRONG)
            else:
                self._console.log(message["error"])
        elif "suspect" in message:
            self._suspect(message["suspect"])
        elif "taken" in message:
            child.has_taken = True
        elif "finishes_jobs" in message:
            # Its other jobs go on, however long they take.
            child.kill_at = None
        elif "extend" in message:
            number = message["extend"]
            self._lease_extender.extend(
                message["lease"],
                message["span"],
                lambda answer: self._events.put(Extended(child, {**answer, "extended": number})),
            )
        elif "warning" in message:
            self._console.log(message["warning"])
        elif "drain" in message:
            self._on_event(Drained())
        elif "up" in message:
            self._is_connected = True
            self._outage.end()
        elif "down" in message:
            self._down(message["down"], message["status"])

    def _down(self, text: str, status: int) -> None:
        if status in _WRONG:
            self._fail(text, WRONG)
        elif status in _REFUSED and not self._is_connected:
            self._fail(text, REFUSED)
        elif not self._stopping or status in _REFUSED:
            # A token may be back soon, and jobs that run have something to report then.
            self._outage.begin(text, status)

    def _ready(self, child: Child, ready: dict[str, Any]) -> None:
        child.ready = True
        if self._reload is not None:
            self._reload.watch(ready["files"])
        if self._is_ready:
            return
        self._is_ready = True
        settings = self._settings
        handlers, queues, processes = ready["handlers"], ready["queues"], settings.processes
        self._console.log(
            f"worker {settings.name}: {len(handlers)} job function{_s(len(handlers))} of {settings.target}, "
            f"queue{_s(len(queues))} {', '.join(queues)}, "
            f"{processes} {'process, ' if processes == 1 else 'processes, each '}"
            f"up to {settings.concurrency} job{_s(settings.concurrency)} at a time; {settings.server}",
            handlers=handlers,
            queues=queues,
        )
        if unnamed := ready["unnamed"]:
            self._console.log(
                f"no job of {settings.target} names the queue{_s(len(unnamed))} {', '.join(unnamed)}: "
                "jobs come from there only if workflows name it"
            )

    def _ended(self, child: Child) -> None:
        held = child.leases()
        self._children.remove(child)
        is_alone = child.alone is not None
        if held and child.retiring:
            self._lease_extender.give_back(held, alone=is_alone)
        elif held:
            self._lease_extender.crashed(held, child.code, alone=is_alone)
        if is_alone:
            if held and not child.retiring:
                self._console.log(
                    f"process {child.pid} {child.how_it_ended()}, and had this job only: {_job(child.alone)}"
                )
            self._start_suspects()
            return
        if child.retiring:
            if child.code and not self._stopping and self._reload is None:
                self._console.log(f"process {child.pid} {child.how_it_ended()}")
            return
        if not child.ready and self._reload is not None:
            # The next change may be better.
            self._console.log(f"process {child.pid} {child.how_it_ended()} while it loaded the program")
            return
        place = child.place
        if time.monotonic() - child.began > _LONG_LIFE:
            self._failures[place] = 0
        pause = min(_PAUSES[0] * 2 ** self._failures[place], _PAUSES[1])
        self._failures[place] = min(self._failures[place] + 1, 10)
        self._starts[place] = time.monotonic() + pause
        self._restarts += 1
        were = "job was" if len(held) == 1 else "jobs were"
        back = f", and {len(held)} {were} in it" if held else ""
        self._console.log(f"process {child.pid} {child.how_it_ended()}{back}. Another one starts in {pause:g} s")

    def _signalled(self, name: str) -> None:
        self._signals += 1
        if self._signals > 1:
            self._console.log(f"{name} again: ending at once")
            for child in self._children:
                child.kill()
            self._code = 1
            return
        running = sum(child.running for child in self._children)
        have = "job has" if running == 1 else "jobs have"
        grace = self._settings.grace
        rest = f"; {running} {have} {grace - reserve(grace):g} s to end" if running else ""
        self._console.log(f"{name}: no more jobs are taken{rest}")
        self._stop(grace)
        self._lease_extender.stop()

    def _stop(self, grace: float | None) -> None:
        self._stopping = True
        self._lease_extender.give_back([HeldLease(claimed["lease"], 0.0, begun=False) for claimed, _ in self._suspects])
        self._suspects = []
        for child in self._children:
            self._retire(child, grace)

    def _retire(self, child: Child, grace: float | None) -> None:
        child.stop(grace)
        if not child.ready:
            # It has no jobs yet.
            child.kill()
        if grace is not None:
            child.kill_at = time.monotonic() + grace + KILL_AFTER

    def _suspect(self, claimed: Any) -> None:
        """Handles a job whose processes have ended twice while it ran: it runs alone in a process, and may end that."""
        if self._stopping:
            self._lease_extender.give_back([HeldLease(claimed["lease"], 0.0, begun=False)])
            return
        self._suspects.append((claimed, time.monotonic() + self._settings.lease / 3))
        self._start_suspects()

    def _start_suspects(self) -> None:
        alone = sum(child.alone is not None for child in self._children)
        while self._suspects and alone < _MAX_ALONE and not self._stopping:
            claimed, _ = self._suspects[0]
            settings = dataclasses.replace(self._settings, alone=claimed, concurrency=1)
            self._console.log(f"{_job(claimed)} runs in a process of its own: others that ran it have ended")
            self._children.append(Child(_NO_PLACE, settings, self._events))
            # Removed after the child has it, so that its lease is extended at any moment.
            del self._suspects[0]
            alone += 1

    def _replace_if_it_runs(self, lease: str) -> None:
        """Handles a job that goes on after its timeout: its process serves no more jobs, and another replaces it."""
        for child in self._children:
            if child.retiring or not any(one.runs and one.lease == lease for one in child.leases()):
                continue
            workflow = lease.partition("-")[0]
            self._console.log(
                f"process {child.pid}: a job of workflow {workflow} goes on {_HANGS_AFTER:g} s after its timeout. "
                "Another process takes its place, and this one ends with its other jobs"
            )
            child.leave(lease, self._settings.grace)
            if child.alone is None and not self._stopping:
                self._restarts += 1
                self._start(child.place)
            return

    def _fail(self, text: str, code: int) -> None:
        """Ends the worker with one line on stderr: it cannot do its work."""
        if self._code is None:
            self._code = code
            self._console.fail(text)
        self._stopping = True
        for child in self._children:
            self._retire(child, self._settings.grace)

    def _healthy(self) -> tuple[bool, str]:
        if self._stopping:
            return False, "the worker is stopping"
        if (outage := self._outage.shown()) is not None:
            return False, outage
        children = list(self._children)
        ready = sum(child.ready and not child.retiring and child.alone is None for child in children)
        hanging = sum(child.hangs for child in children)
        more = f"; {hanging} more with a job that goes on after its timeout" if hanging else ""
        return ready > 0, f"{ready} of {self._settings.processes} processes run jobs{more}"

    def _metrics(self) -> str:
        children = list(self._children)
        with self._lock:
            return metrics(
                self._figures,
                running=sum(child.running for child in children),
                processes=sum(child.ready for child in children),
                claims=self._claims,
                again=self._again,
                restarts=self._restarts,
            )


def _job(claimed: Any) -> str:
    return f"job '{claimed['job']}' of workflow {claimed['workflow_id']}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
