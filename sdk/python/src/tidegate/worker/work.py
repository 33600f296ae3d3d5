"""The jobs that a process has: which wait for a thread, which run, and which are to be reported."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .._jobs import Base
from ..context import Context, WorkerPort
from ..errors import NonRetryable
from .attempt import Ending, failed, given_back, not_begun
from .attempt_histogram import AttemptHistogram
from .leases import LeaseTable, line
from .settings import Settings

# Seconds of work, and most jobs, that are claimed ahead of the running jobs: short jobs need not wait for an answer
# each.
_AHEAD_SECONDS = 0.020
_AHEAD_JOBS = 256
# Longest mean time of a job, in seconds, for which jobs are claimed ahead. Above the time of a call,
# claiming ahead gains nothing, and makes the server search for more than the next job of a chain.
_SHORT = 0.002
# Seconds of queued work for which one more thread is woken. Below that, the change of threads costs more than it
# saves.
_WORK_OF_A_THREAD = 0.005
# Most lines about single jobs that are sent to the parent at a time.
_MAX_LINES = 50
# Seconds after which a job that waits for a place goes back to its queue: more than ten times `_AHEAD_SECONDS`.
STALE = 0.25


class Held:
    """A claimed job until the server has its report."""

    __slots__ = (
        "at",
        "began",
        "claimed",
        "context",
        "ending",
        "ends",
        "job",
        "lease",
        "line",
        "lost",
        "number",
        "slot",
        "task",
        "took",
    )

    def __init__(self, claimed: Any, job: Base[..., Any] | None, number: int, at: float, due: float) -> None:
        self.claimed = claimed
        self.job = job
        self.lease: str = claimed["lease"]
        self.number = number
        self.at = at
        self.line = line(number, due, self.lease)
        timeout = claimed["timeout_ms"]
        self.ends: float | None = None if timeout is None else at + timeout / 1000
        self.began = 0.0
        self.slot = -1
        self.context: Context | None = None
        self.task: Any = None
        self.ending: Ending | None = None
        self.lost: str | None = None
        # None: it was never run to its end.
        self.took: float | None = None

    def is_late(self) -> bool:
        return self.ends is not None and self.ends <= time.monotonic()


class Work:
    """State that the threads of a process share. Fields, and methods with `_` or "With the lock", need `lock`."""

    def __init__(
        self,
        jobs: Mapping[str, Base[..., Any]],
        settings: Settings,
        table: LeaseTable,
        port: WorkerPort,
    ) -> None:
        self.lock = threading.Lock()
        self.ready = threading.Condition(self.lock)  # Threads wait for jobs.
        self.due = threading.Condition(self.lock)  # The reporter waits for reports.
        self.room = threading.Condition(self.lock)  # The poller waits for room.
        self.quiet = threading.Condition(self.lock)  # The end of the process waits for the last report.
        self.tick = threading.Event()
        self.held: dict[str, Held] = {}
        self.queue: deque[Held] = deque()
        self.outbox: list[Held] = []
        self.running: set[Held] = set()
        self.requested = 0
        self.calling = False
        self.failures = 0
        self.stopping = False
        self.leaves_lost = False
        self.ended = False
        self.begun = 0
        self.claims = 0
        self.again = 0
        self.figures = AttemptHistogram()
        self.lines: list[list[Any]] = []
        self.start_thread: Callable[[], None] = lambda: None
        self.report_here: Callable[[], None] = lambda: None
        # Takes a job that is to run in a process of its own.
        self.hand_over: Callable[[Any], None] = lambda _: None
        self.start_tasks: Callable[[list[Held]], None] = lambda _: None
        self._jobs = jobs
        self._is_alone = settings.alone is not None
        self._concurrency = settings.concurrency
        self._processes = settings.processes
        self._lease = settings.lease
        self._table = table
        self._port = port
        self._worker = settings.name
        self._slots = list(range(settings.concurrency))
        self._number = 0
        self._mean: float | None = None
        self._threads = 0
        self._idle = 0

    # Methods that the reporter and the poller call.

    def room_for_poll(self) -> int:
        """With the lock: the limit of a claim that waits."""
        if self.stopping or self.calling or self.outbox or self._is_alone:
            return 0
        # A part of it, so that jobs that come at once are spread over the processes that wait.
        return -(-max(self._concurrency - len(self.held), 0) // self._processes)

    def room_for_report(self, reported: int) -> int:
        """With the lock: how many jobs may be claimed by a call with this number of reports."""
        if self.stopping or self._is_alone:
            return 0
        ahead = 0
        if self._mean is not None and self._mean < _SHORT:
            ahead = min(_AHEAD_JOBS, int(_AHEAD_SECONDS / max(self._mean, 1e-6)))
        return min(max(self._concurrency + ahead - (len(self.held) - reported) - self.requested, 0), 1000)

    def add(self, claimed: list[Any]) -> None:
        """With the lock: jobs were claimed."""
        now = time.monotonic()
        due = now + self._lease / 3
        for one in claimed:
            if one.get("suspect") and not (self._is_alone or self.stopping or one.get("unreadable")):
                self.hand_over(one)
                continue
            self._number += 1
            held = Held(one, self._jobs.get(one["handler"]), self._number, now, due)
            # A job that was in two answers has the same lease: it is here once.
            if held.lease in self.held:
                continue
            self.held[held.lease] = held
            if why := one.get("unreadable"):
                self._refuse(held, why)
            elif self.stopping and not self._is_alone:
                self._end_unrun(held, not_begun(held.lease))
            elif held.job is None:
                self._end_unrun(held, given_back(held.lease, "10s"))
            else:
                self.queue.append(held)

    def taken(self, reported: list[Held]) -> None:
        """With the lock: the server has these reports, or does not want them: then they are lost."""
        for held in reported:
            self.held.pop(held.lease, None)
            if held.took is not None and held.ending is not None:
                outcome, problem = held.ending.outcome, held.ending.problem
                if held.lost is not None:
                    outcome, problem = "lost", f"the lease is over ({held.lost}), and the result was dropped"
                self._record_end(held, outcome, held.took, problem)

    def publish(self, *, by_runner: bool = False) -> None:
        """With the lock: shows the parent what is held now, and begins what can begin.

        `by_runner`: the caller is going to take a job itself.
        """
        self._table.write([held.line for held in self.held.values()])
        if self.queue:
            self.tick.set()
            self.dispatch(by_runner=by_runner)
        elif not self.held:
            self.quiet.notify_all()

    def dispatch(self, *, all_threads: bool = False, by_runner: bool = False) -> None:
        """With the lock: begins async jobs, and wakes as many threads as the others need."""
        self._start_tasks()
        waiting = possible = min(len(self.queue), self._concurrency - len(self.running))
        if waiting > 0 and self._mean is not None and not all_threads:
            waiting = min(waiting, 1 + int(len(self.queue) * self._mean / _WORK_OF_A_THREAD))
            if waiting < possible:
                # The reporter checks whether jobs begin.
                self.due.notify()
        if by_runner:
            waiting -= 1
        if waiting > self._idle:
            # One more than jobs can run, since one may be calling the server.
            more = min(waiting - self._idle, self._concurrency + 1 - self._threads)
            for _ in range(more):
                self._threads += 1
                self.start_thread()
        if waiting > 0 and self._idle:
            self.ready.notify(waiting)

    # Methods that the threads and the event loop call.

    def next(self, done: Held | None, ending: Ending | None) -> Held | None:
        """Takes the end of the job before, and waits for another one. Returns None at the end of the process."""
        while True:
            with self.lock:
                if done is not None and ending is not None:
                    self._finish(done, ending)
                    done = None
                while not self.can_report_here():
                    if self.ended:
                        return None
                    self._start_tasks()
                    if self.queue and self._slots:
                        if self.outbox and not self.calling:
                            self.due.notify()
                        return self._begin(self.queue.popleft())
                    self._idle += 1
                    self.ready.wait()
                    self._idle -= 1
            self.report_here()

    def can_report_here(self) -> bool:
        """With the lock: whether a thread may call the server: no other thread does, and there is no job to run."""
        return bool(self.outbox) and not (self.calling or self.failures or self.queue or self.ended)

    def finish(self, held: Held, ending: Ending) -> None:
        """The task of an async job has ended."""
        with self.lock:
            self._finish(held, ending)
            self.due.notify()
            if self.queue:
                self.dispatch()

    # Changes from outside: lost leases, jobs that wait too long, and the end of the process.

    def lose(self, lease: str, reason: str) -> Held | None:
        """With the lock: the lease is over. Returns the job if it runs."""
        held = self.held.get(lease)
        if held is None or held.lost is not None or (reason == "reported" and held.ending is not None):
            return None
        held.lost = reason
        if held in self.running:
            return held
        self.taken([held])
        if held.ending is None:
            self.queue.remove(held)
        elif held in self.outbox:
            self.outbox.remove(held)
        self.publish()
        self.room.notify()
        return None

    def give_back_queue(self, now: float) -> None:
        """With the lock: returns jobs that have waited too long: the jobs before them take longer than was thought."""
        while self.queue and now - self.queue[0].at > STALE and not self._is_alone:
            held = self.queue.popleft()
            self._end_unrun(held, not_begun(held.lease))
            self._mean = STALE

    def stop(self) -> None:
        """With the lock: no more jobs are taken, and those that have not begun go back. One that is alone runs."""
        self.stopping = True
        while self.queue and not self._is_alone:
            held = self.queue.pop()
            self._end_unrun(held, not_begun(held.lease))
        for condition in (self.due, self.room, self.quiet):
            condition.notify_all()

    def give_back_running(self) -> None:
        """With the lock: the process ends, and the running jobs go back to their queues."""
        for held in list(self.running):
            self.running.discard(held)
            self._end_unrun(held, given_back(held.lease))

    def is_busy(self) -> bool:
        """With the lock: whether there is a job that the end of the process waits for."""
        return any(held.lost is None for held in self.held.values()) if self.leaves_lost else bool(self.held)

    def end(self) -> None:
        """With the lock: threads are to end."""
        self.ended = True
        for condition in (self.ready, self.due, self.room, self.quiet):
            condition.notify_all()

    def _start_tasks(self) -> None:
        queue = self.queue
        begun: list[Held] = []
        while queue and self._slots and queue[0].job is not None and queue[0].job.is_async:
            begun.append(self._begin(queue.popleft()))
        if begun:
            self.start_tasks(begun)

    def _begin(self, held: Held) -> Held:
        held.slot = self._slots.pop()
        self._table.begin(held.slot, held.number)
        self.running.add(held)
        self.begun += 1
        held.context = Context(held.claimed, port=self._port, worker=self._worker)
        held.began = time.monotonic()
        # The number of running jobs is sent to the parent, and deadlines are checked.
        if not self.tick.is_set():
            self.tick.set()
        return held

    def _finish(self, held: Held, ending: Ending) -> None:
        if held not in self.running:
            return
        self.running.discard(held)
        self._table.begin(held.slot, 0)
        self._slots.append(held.slot)
        seconds = time.monotonic() - held.began
        mean = self._mean
        # The mean rises fast and falls slowly: too few jobs ahead cost little, too many wait here while other workers
        # are idle.
        self._mean = seconds if mean is None else mean + (seconds - mean) * (0.3 if seconds > mean else 0.1)
        held.ending, held.took = ending, seconds
        if held.lost is None:
            self.outbox.append(held)
        else:
            self.taken([held])
            self.publish()
            self.room.notify()

    def _refuse(self, held: Held, why: str) -> None:
        name = held.claimed["handler"]
        held.ending = failed(held.lease, NonRetryable(f"job '{name}' cannot run here: {why}"))
        held.took = 0.0
        self.outbox.append(held)
        self.due.notify()

    def _end_unrun(self, held: Held, ending: Ending) -> None:
        held.ending = ending
        self.outbox.append(held)
        self.due.notify()

    def _record_end(self, held: Held, outcome: str, seconds: float, problem: str) -> None:
        claimed = held.claimed
        handler = claimed["handler"]
        self.figures.add(handler, outcome, seconds)
        # Ends that are no success are always worth a line, as far as a screen can show them.
        if len(self.lines) < (_MAX_LINES if outcome == "succeeded" else 2 * _MAX_LINES):
            line_fields = [time.time(), outcome, claimed["job"], handler, seconds, claimed["workflow_id"], problem]
            self.lines.append(line_fields)
        if not self.tick.is_set():
            self.tick.set()


def refused(held: Held, detail: str) -> Ending:
    """Returns the report that replaces one which the server did not understand."""
    return failed(
        held.lease, NonRetryable(f"the server refused the report of job '{held.claimed['handler']}': {detail}")
    )
