"""What a job knows of its attempt, and what it can ask of its worker."""

from __future__ import annotations

import contextvars
import datetime
import functools
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast

from . import _connect  # pyright: ignore[reportPrivateUsage]
from ._span import span
from .errors import DefinitionError, GivenBack, InvalidParam, Throttled

if TYPE_CHECKING:
    from . import api
    from ._jobs import Base
    from ._run import Run
    from ._span import Span
    from ._workflows import Template, WorkflowOptions

P = ParamSpec("P")
R = TypeVar("R")

#: The shortest and longest pause, in seconds, of a job between two reads of a workflow that it waits for.
POLL_BOUNDS = 0.05, 30.0
#: Most bytes of a job's name in an idempotency key, which has at most 200 bytes. A longer name is replaced by its hash.
_MAX_NAME = 120


class WorkerPort(Protocol):
    """The calls of a context to its worker."""

    def add_notes(self, lease: str, percent: int | None, text: str | None, lines: list[str]) -> None:
        """Keeps progress and log lines, to be sent soon."""

    def extend(self, lease: str, span: str) -> None:
        """Extends a lease now."""


class Context:
    """An attempt of a job. :func:`current` returns that of the job that runs here."""

    def __init__(self, claimed: api.ClaimedJob, *, port: WorkerPort | None = None, worker: str = "") -> None:
        self._claimed, self._port, self.worker = claimed, port, worker
        self._cancelled = threading.Event()
        #: Why the job is not wanted any more: the reason of its lost lease, ``timed_out`` or ``stopping``.
        self.reason: str | None = None
        self._spawned = 0
        timeout = claimed["timeout_ms"]
        #: When the attempt counts as failed, if it has a timeout.
        self.deadline: datetime.datetime | None = None
        if timeout is not None:
            self.deadline = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(milliseconds=timeout)

    @property
    def workflow_id(self) -> str:
        return self._claimed["workflow_id"]

    @property
    def workflow_name(self) -> str:
        return self._claimed["workflow_name"]

    @property
    def job(self) -> str:
        """The job's name in its workflow."""
        return self._claimed["job"]

    @property
    def handler(self) -> str:
        return self._claimed["handler"]

    @property
    def queue(self) -> str:
        return self._claimed["queue"]

    @property
    def lease(self) -> str:
        return self._claimed["lease"]

    @property
    def attempt(self) -> int:
        """1 for the first. Lost leases do not count, and a restart begins again."""
        return self._claimed["attempt"]

    @property
    def fence(self) -> int | None:
        """Grows with every lease of the job. Store it with results, and refuse to write over a higher one."""
        return self._claimed["fence"]

    @property
    def params(self) -> dict[str, Any]:
        """The params as they were sent, with the globals of the workflow."""
        return self._claimed["params"]

    @property
    def inputs(self) -> list[api.JobInput]:
        """The jobs directly before this one: ``job``, ``output``, and by the rule also ``state`` and ``error``."""
        return self._claimed["inputs"]

    def output(self, job: str) -> Any:
        """The output of a job directly before this one. A large output is fetched from the server.

        Raises:
            KeyError: no such job is before this one.
        """
        for one in self.inputs:
            if one["job"] == job:
                if job not in self._claimed["omitted_inputs"]:
                    return one["output"]
                break
        if job in self._claimed["omitted_inputs"]:
            return _connect.client().show_job(self.workflow_id, job).get("output")
        raise KeyError(job)

    def error(self, job: str) -> api.InputError | None:
        """The error of a job directly before this one whose latest attempt failed, if the rule of this one lets it see
        that."""
        return next((one.get("error") for one in self.inputs if one["job"] == job), None)

    def progress(self, percent: float, text: str = "") -> None:
        """Says how far the job is: 0 to 100, and a word. It is sent within half a second.

        Raises:
            InvalidParam: ``percent`` is out of this range.
        """
        if not 0 <= percent <= 100:
            raise InvalidParam(f"progress({percent!r}): expected a percentage from 0 to 100")
        if self._port is not None:
            self._port.add_notes(self.lease, int(percent), text, [])

    def log(self, text: str) -> None:
        """Writes to the job's log. What a job logs with :mod:`logging` goes there too."""
        if self._port is not None:
            self._port.add_notes(self.lease, None, None, str(text).splitlines() or [""])

    @property
    def cancelled(self) -> bool:
        """Whether the result is not wanted any more. Long work checks this now and then, and ends."""
        return self._cancelled.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Sleeps for ``seconds``, or until the job is cancelled; returns whether it is."""
        return self._cancelled.wait(seconds)

    def cancel(self, reason: str) -> None:
        """Called by the worker when the lease is lost or the attempt took too long."""
        self.reason = self.reason or reason
        self._cancelled.set()

    def extend(self, lease: Span) -> None:
        """Keeps the job for the span ``lease`` from now on. Workers do that by themselves; it is for work that outlives
        its worker's host."""
        if self._port is not None:
            self._port.extend(self.lease, span(lease))

    def wrap(self, function: Callable[P, R]) -> Callable[P, R]:
        """Returns the function for a thread that the job starts, where :func:`current` is this context then:
        ``pool.map(current().wrap(load), names)``. ``asyncio.to_thread`` and tasks need no such help."""
        here = contextvars.copy_context()
        here.run(_current.set, self)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            # A context runs on one thread at a time.
            return here.copy().run(function, *args, **kwargs)

        return wrapped

    def throttle(self, retry_after: Span, message: str = "") -> NoReturn:
        """Ends the attempt: the service behind a rate limit of the job refused it, such as a vendor that answered with
        429. Jobs with the same limits wait for ``retry_after``, too, and the attempt does not count."""
        raise Throttled(retry_after, message)

    def give_back(self, pause: Span | None = None) -> NoReturn:
        """Ends the attempt: the job goes back to its queue, and waits there for ``pause``. The attempt does not
        count."""
        raise GivenBack(pause)

    def spawn(self, what: Template[P, R] | Base[P, R], *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """Starts another workflow, or a job alone, and returns it; ``result()`` waits for it.

        Its key is made of this job, the attempt and the number of the call. So when the job runs again, because it
        waited or its worker died, the same calls find the same workflows, and nothing is started twice. Call it in the
        same order each time.

        Raises:
            DefinitionError: this is a plain call, which no worker runs.
        """
        from ._decode import hints
        from ._run import start
        from ._telemetry import inherited
        from ._workflows import Template

        if not self.workflow_id:
            raise DefinitionError(
                "spawn() needs a job that a worker runs, and this is a plain call of the function. "
                "Tests run such jobs with tidegate.testing"
            )
        self._spawned += 1
        job = self.job
        if len(job.encode()) > _MAX_NAME:
            from hashlib import sha256

            job = sha256(job.encode()).hexdigest()
        key = f"{self.workflow_id}/{job}/{self.attempt}/{self._spawned}"
        result: Any
        options: WorkflowOptions = {}
        if isinstance(what, Template):
            options = what.chosen
            graph, result = what.build(*args, **kwargs)
        else:
            from ._graph import Graph, build

            graph = Graph(what.label)
            with build(graph):
                result = what.step(*args, **kwargs)
        more: WorkflowOptions = {"key": key}
        if trace := inherited(self.params):
            more["globals"] = {**options.get("globals", {}), **trace}
        run = start(graph, result, hints(what.function).get("return", Any), {**options, **more}, None)
        return Child(cast("Run[R]", run))


class Child(Generic[R]):
    """A workflow that a job started."""

    def __init__(self, run: Run[R]) -> None:
        self.run = run

    @property
    def id(self) -> str:
        """The id of the workflow."""
        return self.run.id

    def result(self) -> R:
        """The result of the workflow. While that is not over, the job goes back to its queue, and runs again from its
        beginning later. Until then, the worker can run another job.

        Raises:
            JobError: it failed.
        """
        from ._run import OVER

        shown = self.run.show()
        if shown["status"] not in OVER:
            raise GivenBack(_pause(shown["created_at"]))
        return self.run.result()


def _pause(created: str) -> float:
    """The pause before the next read: half of the age of the workflow, so long workflows are read seldom. The end is
    noticed after at most half of the duration again."""
    began = datetime.datetime.fromisoformat(created.replace("Z", "+00:00"))
    age = (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()
    return min(max(age / 2, POLL_BOUNDS[0]), POLL_BOUNDS[1])


_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar("tidegate_context", default=None)


def current() -> Context:
    """The context of the job that runs here. Outside of a job, such as in a test that calls the function, it is one
    that belongs to nothing: attempt 1, never cancelled, and its notes go nowhere."""
    return _current.get() or detached()


def running() -> Context | None:
    """The context of the job that runs here, if one does."""
    return _current.get()


def detached(params: Mapping[str, Any] | None = None) -> Context:
    """A context that belongs to no job."""
    return Context(
        {
            "lease": "",
            "lease_expires_at": "",
            "workflow_id": "",
            "workflow_name": "",
            "job": "",
            "handler": "",
            "queue": "",
            "attempt": 1,
            "fence": None,
            "params": dict(params or {}),
            "inputs": [],
            "omitted_inputs": [],
            "timeout_ms": None,
        }
    )


def new_context() -> contextvars.Context:
    """A context for one job, without the variables that earlier jobs on this thread have set."""
    return contextvars.Context()


@contextmanager
def enter(context: Context) -> Generator[Context]:
    """Makes this context the current one for the code of the ``with`` block."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
