"""The event loop of a process, on which its async jobs run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from .. import _telemetry
from ..context import enter, new_context
from . import attempt, fork
from .attempt import Ending
from .work import Held


class Loop:
    """Runs tasks until the process ends. `finish` takes a job and how it ended."""

    def __init__(self, finish: Callable[[Held, Ending], None]) -> None:
        self._finish = finish
        self._loop = asyncio.new_event_loop()
        self._inbox: deque[Held] = deque()
        self._is_called = False

    def run(self) -> None:
        """The thread of the loop."""
        asyncio.set_event_loop(self._loop)
        while True:
            # A task that a job made may raise SystemExit, and a job may stop the loop: the jobs of others go on.
            with contextlib.suppress(BaseException):
                self._loop.run_forever()
            fork.leave(None)
            time.sleep(0.001)

    def add(self, begun: list[Held]) -> None:
        """Begins these jobs. Any thread may call it."""
        self._inbox.extend(begun)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._begin)

    def cancel(self, held: Held) -> None:
        """Cancels the task of a job. Any thread may call it."""
        self._loop.call_soon_threadsafe(held.task.cancel)

    def _begin(self) -> None:
        # Before the jobs are taken: who adds one later calls again.
        self._is_called = False
        while self._inbox:
            held = self._inbox.popleft()
            # The task copies the context in which it is made.
            held.task = new_context().run(self._task, held)
            if held.context is not None and held.context.cancelled:
                held.task.cancel()

    def _task(self, held: Held) -> asyncio.Task[None]:
        return self._loop.create_task(self._run(held))

    async def _run(self, held: Held) -> None:
        job, context, lease = held.job, held.context, held.lease
        assert job is not None and context is not None
        try:
            with enter(context), _telemetry.span(held.claimed):
                output = await job.ainvoke(held.claimed)
            fork.leave(None)
            ending = attempt.interrupted(held.claimed, context, late=held.is_late()) or attempt.succeeded(
                lease, job.handler, output
            )
        except BaseException as error:  # A job that calls exit() has failed like any other.
            fork.leave(error)
            ending = attempt.interrupted(held.claimed, context, late=held.is_late()) or attempt.raised(lease, error)
        self._finish(held, ending)
