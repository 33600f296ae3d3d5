"""Runs the jobs of one process: threads for sync jobs, an event loop for async ones."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _telemetry
from .._http.address import Address
from .._jobs import Base
from ..context import enter, new_context
from ..errors import TidegateError
from . import attempt, fork
from .attempt import Ending
from .calls import Calls
from .connection import InterruptibleConnection
from .leases import LeaseTable
from .notes import Notes
from .settings import Settings
from .work import Held, Work

if TYPE_CHECKING:
    from .loop import Loop

# Interval in seconds at which figures of ended jobs are sent to the parent, and deadlines and waiting jobs are
# checked.
_TICK = 0.1
# Seconds that notes wait for further ones before they are sent.
_NOTES_AFTER = 0.5
# How long the answer of a claim that was left may still come, in seconds.
_LAST_ANSWER = 1.0
# How long a job waits for the extension of its lease, in seconds.
_EXTEND = 30.0
# The exit code of a process of which a thread has ended by an error of this package.
_BROKEN = 70


class Engine:
    """Claims, runs and reports until `stop`. `send_to_parent` sends a message to the parent process."""

    def __init__(
        self,
        settings: Settings,
        jobs: Mapping[str, Base[..., Any]],
        table: LeaseTable,
        send_to_parent: Callable[[dict[str, Any]], None],
    ) -> None:
        address = Address(settings.server)
        self._settings = settings
        self._send_to_parent = send_to_parent
        self._notes = Notes()
        self._notes_at = 0.0
        self.work = Work(jobs, settings, table, self)
        self.work.start_thread = lambda: self._start(self._run_jobs, "job")
        self.work.start_tasks = self._start_tasks
        self.work.hand_over = lambda claimed: send_to_parent({"suspect": claimed})
        self._loop: Loop | None = None
        if any(job.is_async for job in jobs.values()):
            # The import of asyncio takes as long as the start without it.
            from .loop import Loop

            self._loop = Loop(self.work.finish)
        self._is_looping = False
        self._cut_at = 0.0
        connections = [InterruptibleConnection(address, settings.token, settings.cacert) for _ in range(2)]
        self._poll_connection, report = connections
        self._extending: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._extensions = itertools.count(1)
        claim = {
            "queues": list(settings.queues),
            "handlers": sorted(jobs),
            "worker": settings.name,
            "lease": f"{round(settings.lease * 1000)}ms",
        }
        self._calls = Calls(
            self.work, self._notes, self._poll_connection, report, claim, settings.uptime, send_to_parent
        )
        self.work.report_here = self._calls.report_here

    def start(self) -> None:
        self._start(self._calls.poll, "claims")
        self._start(self._calls.report, "reports")
        self._start(self._tick, "tick")

    def begin(self, claimed: Any) -> None:
        """Runs a job that another process has claimed."""
        with self.work.lock:
            self.work.add([claimed])
            self.work.publish()

    def stop(self) -> None:
        """Takes no more jobs. What has not begun goes back."""
        with self.work.lock:
            self.work.stop()
        # Jobs of a claim that its caller leaves go back to their queue. Those of an answer that is on its way come.
        self._cut_at = time.monotonic()
        self._poll_connection.interrupt()

    def wait(self, seconds: float | None) -> bool:
        """Waits at most `seconds` until all jobs have ended and are reported. Returns whether they are."""
        ends = None if seconds is None else time.monotonic() + seconds
        work = self.work
        with work.lock:
            while work.is_busy() or (work.requested and time.monotonic() - self._cut_at < _LAST_ANSWER):
                left = 1.0 if ends is None else min(ends - time.monotonic(), 1.0)
                if left <= 0:
                    return False
                work.quiet.wait(min(left, _LAST_ANSWER) if work.requested else left)
        return True

    def abandon(self, seconds: float) -> None:
        """Cancels the jobs that run, waits half of `seconds`, and returns those that go on to their queues."""
        with self.work.lock:
            running = list(self.work.running)
        for held in running:
            self._interrupt(held, "stopping")
        if not self.wait(seconds / 2):
            with self.work.lock:
                self.work.give_back_running()
            self.wait(seconds / 2)

    def end(self) -> None:
        """Sends the last figures."""
        self._send_figures()
        with self.work.lock:
            self.work.end()

    def leave(self, lease: str) -> bool:
        """Does not wait for the job of this lease, nor for others that are lost. Returns whether the jobs beside it go
        on: one that holds the event loop holds up all others there."""
        with self.work.lock:
            held = self.work.held.get(lease)
            if held is not None and held.job is not None and held.job.is_async:
                return False
            self.work.leaves_lost = True
            return True

    def lose(self, lease: str, reason: str) -> None:
        """The lease is over: its job is not wanted any more."""
        with self.work.lock:
            held = self.work.lose(lease, reason)
        if held is not None:
            self._interrupt(held, reason)

    # Methods that contexts call.

    def add_notes(self, lease: str, percent: int | None, text: str | None, lines: list[str]) -> None:
        """Keeps progress and log lines, to be sent within half a second."""
        if self._notes.add(lease, percent, text, lines):
            self._notes_at = time.monotonic() + _NOTES_AFTER
            self.work.tick.set()

    def extend(self, lease: str, span: str) -> None:
        """Extends a lease now. The parent does it, which extends all others, so that none of its calls comes later and
        shortens this one."""
        number, answers = next(self._extensions), queue.SimpleQueue[dict[str, Any]]()
        self._extending[number] = answers
        try:
            self._send_to_parent({"extend": number, "lease": lease, "span": span})
            answer = answers.get(timeout=_EXTEND)
        except queue.Empty:
            answer = {"problem": f"no answer within {_EXTEND:g} s"}
        finally:
            del self._extending[number]
        if answer.get("lost"):
            self.lose(lease, answer["lost"])
        if answer.get("problem"):
            raise TidegateError(f"the lease was not extended: {answer['problem']}")

    def extended(self, answer: dict[str, Any]) -> None:
        """The parent has extended a lease, or not."""
        waiting = self._extending.get(answer["extended"])
        if waiting is not None:
            waiting.put(answer)

    # Its threads.

    def _start(self, run: Callable[[], None], name: str) -> None:
        def watched() -> None:
            try:
                run()
            except BaseException:
                # Without one of its threads the process would stand still. Another one is started, and its jobs go
                # back.
                traceback.print_exc()
                os._exit(_BROKEN)

        threading.Thread(target=watched, name=f"tidegate-{name}", daemon=True).start()

    def _run_jobs(self) -> None:
        work = self.work
        held = work.next(None, None)
        while held is not None:
            held = work.next(held, _run(held))

    def _start_tasks(self, begun: list[Held]) -> None:
        assert self._loop is not None, "only async jobs come here"
        if not self._is_looping:
            self._is_looping = True
            self._start(self._loop.run, "loop")
        self._loop.add(begun)

    def _interrupt(self, held: Held, reason: str) -> None:
        if held.context is not None:
            held.context.cancel(reason)
        if held.task is not None and self._loop is not None:
            self._loop.cancel(held)

    def _tick(self) -> None:
        work = self.work
        while not work.ended:
            work.tick.wait()
            time.sleep(_TICK)
            work.tick.clear()
            now = time.monotonic()
            late: list[Held] = []
            with work.lock:
                work.give_back_queue(now)
                again = bool(work.queue)
                for held in work.running:
                    if held.ends is not None and held.context is not None and not held.context.cancelled:
                        again = True
                        if held.ends <= now:
                            late.append(held)
                if self._notes_at:
                    again = True
                    if self._notes_at <= now:
                        self._notes_at = 0.0
                        self._calls.notes_due = True
                        work.due.notify()
            for held in late:
                self._interrupt(held, "timed_out")
            self._send_figures()
            if again:
                work.tick.set()

    def _send_figures(self) -> None:
        work = self.work
        with work.lock:
            figures, lines, claims, again = work.figures.encode(), work.lines, work.claims, work.again
            work.figures.counts, work.figures.seconds, work.lines = {}, {}, []
            work.claims = work.again = 0
            running = len(work.running)
        self._send_to_parent({"figures": figures, "lines": lines, "running": running, "claims": claims, "again": again})


def _run(held: Held) -> Ending:
    return new_context().run(_run_here, held)


def _run_here(held: Held) -> Ending:
    job, context, lease = held.job, held.context, held.lease
    assert job is not None and context is not None
    try:
        with enter(context), _telemetry.span(held.claimed):
            output = job.invoke(held.claimed)
    except BaseException as error:  # A job that calls exit() has failed like any other.
        fork.leave(error)
        return attempt.interrupted(held.claimed, context, late=held.is_late()) or attempt.raised(lease, error)
    fork.leave(None)
    return attempt.interrupted(held.claimed, context, late=held.is_late()) or attempt.succeeded(
        lease, job.handler, output
    )
