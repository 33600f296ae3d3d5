"""A server for tests: workflows run on the real server, in this process, and hours of waiting take no time.

::

    with tidegate.testing.server() as server:
        assert server.run(report, "monday").result() == "sent"
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import inspect
import json
import logging
import threading
import time
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from . import _connect, _telemetry  # pyright: ignore[reportPrivateUsage]
from ._jobs import Base, made_in
from ._run import OVER
from ._span import Span, span
from ._testserver import Process
from ._workflows import Template, Workflow
from .client import Client
from .context import Context, enter, new_context
from .errors import DefinitionError, GivenBack, TidegateError, WorkflowNotDone, deciding
from .limits import RateLimits, used, using
from .worker import attempt

if TYPE_CHECKING:
    from . import api
    from ._run import Run

__all__ = ["Server", "server"]

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)
_WORKER = "tidegate.testing"
#: Jobs that are claimed with one call. They run one after the other.
_LIMIT = 16
#: Most reports in one call.
_REPORTS = 4
#: The most queues of a claim.
_QUEUES = 100
#: So often the clock is moved without a job to run, before that is a mistake: such as a limit that is paused for good.
_MOVES = 1000


@contextmanager
def server(
    *,
    jobs: Iterable[Base[..., Any]] = (),
    limits: str | Path | None = None,
    timeout: float = 60.0,
    binary: str | None = None,
    **settings: str,
) -> Generator[Server]:
    """Starts a server with workflows in memory and a clock of its own, and ends it.

    What is started in this context without another client is started there, and ``@limited`` asks there: where it would
    wait, it moves the clock. ``limits`` is the text of a file with rate limits, or the path of a file or a folder of
    them. ``settings`` are further variables of the server, such as ``TIDEGATE_RETENTION="1h"``. A run may take
    ``timeout`` seconds of real time. Jobs are found by their handlers: first among ``jobs``, then among those that the
    workflow's function names, then among all of this process.

    The program is ``binary``, or that of TIDEGATE_BINARY, of the package tidegate-server, or on the PATH.

    Raises:
        TidegateError: there is no such program, it does not start, or the limits are wrong.
    """
    process = Process.start(binary, limits, settings)
    try:
        with Client(process.url) as client, _connect.using(client):
            one = Server(client, jobs, timeout)
            one.limits_url = process.limits_url
            limiter = _Limits(one)
            try:
                with using(limiter):
                    yield one
            finally:
                limiter.close()
    finally:
        process.end()


class Server:
    """A server for tests, which runs jobs one after the other where they are waited for. Use it from one thread."""

    def __init__(self, client: Client, jobs: Iterable[Base[..., Any]] = (), timeout: float = 60.0) -> None:
        self.client = client
        #: The address for :class:`tidegate.limits.RateLimits`.
        self.limits_url = ""
        self._timeout = timeout
        self._given: dict[str, Base[..., Any]] = {one.handler: one for one in jobs}
        self._named: dict[str, Base[..., Any]] = {}
        self._module = ""

    def __repr__(self) -> str:
        return f"<server for tests at {self.url}>"

    @property
    def url(self) -> str:
        """The address of its API."""
        return self.client.server

    @overload
    def run(self, what: Template[P, R] | Base[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def run(self, what: type[Workflow], /, *args: Any, **kwargs: Any) -> Run[dict[str, Any]]: ...
    def run(self, what: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Starts a workflow, or a job alone, and runs its jobs to its end. When no job is ready, the clock is moved to
        the next wait or retry.

        Raises:
            DefinitionError: a job's function is not known here.
            WorkflowNotDone: nothing can go on, or it took too long.
        """
        self._know(what)
        with _connect.using(self.client):
            if isinstance(what, Base):
                run: Run[Any] = cast("Base[..., Any]", what).enqueue(*args, **kwargs)
            else:
                run = what.start(*args, **kwargs)
        return self.finish(run)

    def finish(self, run: Run[R]) -> Run[R]:
        """Runs jobs until this workflow is over, as :meth:`run` does. Ready jobs of other workflows run, too."""
        ends, moves = time.monotonic() + self._timeout, 0
        while True:
            moves = 0 if self._work(ends) else moves + 1
            shown = self.client.show_workflow(run.id)
            run.name = shown["name"]
            if shown["status"] in OVER:
                return run
            moved = self._advance({"to_next": True})
            if moves >= _MOVES or (moves > 0 and not moved["advanced_ms"] and moved["next"] is None):
                raise self._stuck(run, shown["status"], "nothing that it waits for comes with time")

    def work(self) -> int:
        """Runs the jobs that are ready, and those that become ready by that. The clock stays. Returns the number of
        attempts."""
        return self._work(time.monotonic() + self._timeout)

    def advance(self, by: Span) -> datetime.datetime:
        """Moves the clock, and returns its time. What becomes due runs with :meth:`work` or :meth:`finish`."""
        return _time(self._advance({"by": span(by)})["now"])

    def _advance(self, body: dict[str, Any]) -> Any:
        return self.client.request("POST", "/v1/test/clock:advance", body=body, safe=False)

    def _work(self, ends: float) -> int:
        done = 0
        with _connect.using(self.client):
            while queues := self._queues():
                claim: api.Claim = {"queues": queues, "worker": _WORKER, "limit": _LIMIT, "lease": "1h"}
                jobs = self.client.claim_jobs(claim)["jobs"]
                if not jobs:
                    break
                while jobs:
                    if time.monotonic() > ends:
                        raise WorkflowNotDone(
                            f"jobs still run after {self._timeout:g} s. If they need more time: server(timeout=..)"
                        )
                    done += len(jobs)
                    jobs = self._run_all(jobs, claim)
        return done

    def _queues(self) -> list[str]:
        """The queues that have ready jobs."""
        every = self.client.list_queues(limit=1000)["items"]
        return [one["name"] for one in every if one["ready"] and not one["paused"]][:_QUEUES]

    def _run_all(self, jobs: list[api.ClaimedJob], claim: api.Claim) -> list[api.ClaimedJob]:
        notes = _Notes(self.client)
        left = [(claimed, self._run_one(claimed, notes).decode()) for claimed in jobs]
        if notes.kept:
            self.client.extend_leases({"leases": [], "notes": notes.kept})
        claimed_next: list[api.ClaimedJob] = []
        while left:
            # A call has a bound, and each job may return a MiB.
            now, left = left[:_REPORTS], left[_REPORTS:]
            more = "" if left else f',"claim":{_json(claim)}'
            body = f'{{"reports":[{",".join(report for _, report in now)}]{more}}}'
            answer = self.client.request("POST", "/v1/jobs/report", body=body.encode(), safe=True)
            for (claimed, _), item in zip(now, answer["reports"], strict=True):
                # A job that moved the clock may have lost its lease: then it runs again, as it would elsewhere.
                if (error := item.get("error")) is not None:
                    _log.warning("job '%s': its report was refused: %s", claimed["job"], error["detail"])
            claimed_next = answer["jobs"]
        return claimed_next

    def _run_one(self, claimed: api.ClaimedJob, notes: _Notes) -> bytes:
        job = self._job(claimed)
        # As in a worker: variables of the test and of other jobs are not there.
        return new_context().run(self._run_here, job, claimed, Context(claimed, port=notes, worker=_WORKER), used())

    def _run_here(
        self, job: Base[..., Any], claimed: api.ClaimedJob, context: Context, limits: RateLimits | None
    ) -> bytes:
        lease, handler = claimed["lease"], claimed["handler"]
        limited_by = nullcontext() if limits is None else using(limits)
        try:
            with _connect.using(self.client), limited_by, enter(context), _telemetry.span(claimed):
                output = _finished(job.ainvoke(claimed)) if job.is_async else job.invoke(claimed)
        except BaseException as error:
            if isinstance(deciding(error), GivenBack):
                return attempt.raised(lease, error).report
            if not isinstance(error, Exception):
                raise
            _log.info("job '%s', attempt %d: %s", claimed["job"], claimed["attempt"], error, exc_info=True)
            return attempt.raised(lease, error).report
        return attempt.succeeded(lease, handler, output).report

    def _job(self, claimed: api.ClaimedJob) -> Base[..., Any]:
        handler = claimed["handler"]
        found = self._given.get(handler) or self._named.get(handler) or _registered(handler, self._module)
        if found is None:
            raise DefinitionError(
                f"job '{claimed['job']}' of workflow '{claimed['workflow_name']}': "
                f"no function here has the handler '{handler}'{_similar(handler)}. "
                "Import its module, or name its job: server(jobs=[..])"
            )
        return found

    def _know(self, what: Any) -> None:
        """Finds the jobs that a workflow's function names. Others of this process may have the same handlers."""
        function: Any = cast("type[Workflow]", what).configure if isinstance(what, type) else what.function
        self._module = function.__module__
        if isinstance(what, Base):
            one = cast("Base[..., Any]", what)
            self._named = {one.handler: one}
            return
        names = inspect.getclosurevars(function)
        values = [*names.globals.values(), *names.nonlocals.values()]
        self._named = {value.handler: cast("Base[..., Any]", value) for value in values if isinstance(value, Base)}

    def _stuck(self, run: Run[Any], status: str, why: str) -> TidegateError:
        waiting = [job for job in run.jobs() if job["state"] not in ("succeeded", "failed", "skipped", "cancelled")]
        shown = [f"job '{job['name']}' is {job['state']} in queue '{job['queue']}'" for job in waiting[:3]]
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        return WorkflowNotDone(f"workflow '{run.name}' ({run.id}) is {status}, and {why}: {', '.join(shown)}{more}")


class _Limits(RateLimits):
    """The rate limits of a server for tests. The server's clock stands still, so waiting would not end."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.limits_url)
        self._server = server

    def pause(self, seconds: float) -> None:
        self._server.advance(seconds)

    async def apause(self, seconds: float) -> None:
        self._server.advance(seconds)


class _Notes:
    """Progress and log lines of jobs, which are sent with their reports."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.kept: list[api.Note] = []

    def add_notes(self, lease: str, percent: int | None, text: str | None, lines: list[str]) -> None:
        one: api.Note = {"lease": lease}
        if percent is not None:
            one["progress"] = {"percent": percent, "text": text or ""}
        if lines:
            one["log"] = lines
        self.kept.append(one)

    def extend(self, lease: str, span: str) -> None:
        self._client.extend_leases({"leases": [lease], "lease": span})


def _registered(handler: str, module: str) -> Base[..., Any] | None:
    """The latest job with this handler that a module made, or else that any module made."""
    every = [*(one for made in made_in.values() for one in made), *made_in.get(module, [])]
    same: list[Base[..., Any]] = [one for one in every if one.handler == handler]
    return same[-1] if same else None


def _similar(handler: str) -> str:
    """Names the handler of a function with this name: by default, that begins with its module."""
    name = handler.rpartition(".")[2]
    found = [one.handler for made in made_in.values() for one in made if one.handler.rpartition(".")[2] == name]
    return f" (did you mean '{found[-1]}'?)" if found else ""


def _json(value: Any) -> str:
    return json.dumps(value)


def _time(text: str) -> datetime.datetime:
    # Python 3.10 does not read the Z.
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _finished(coroutine: Coroutine[Any, Any, R]) -> R:
    """Runs an async job to its end; on a thread when this one has an event loop that runs, as in an async test."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    ended: list[R | BaseException] = []

    def run() -> None:
        try:
            ended.append(asyncio.run(coroutine))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
    thread.start()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]
