"""Runs: workflows on the server."""

from __future__ import annotations

import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TextIO, TypeVar, cast

from . import _connect, _telemetry  # pyright: ignore[reportPrivateUsage]
from ._decode import decode
from ._graph import Graph
from ._trace import tried, user_level
from ._values import encode, resolve
from ._workflows import WorkflowOptions, description
from .errors import (
    IdempotencyMismatch,
    JobError,
    LimitWarning,
    RemoteError,
    TidegateError,
    TooLarge,
    WorkflowNotDone,
)

if TYPE_CHECKING:
    from . import api
    from ._http.events import Event
    from .client import Client

R = TypeVar("R")

#: How long one request waits for the end, in seconds. Proxies often end calls after a minute.
POLL_SECONDS = 30.0
#: How long the first request waits, in seconds. Then the reason why a job waits for a worker is logged once: without a
#: worker, the wait would have no end.
FIRST_POLL_SECONDS = 5.0
OVER = frozenset(("succeeded", "failed", "cancelled"))
#: Least time between two reads of a run's progress, in seconds.
PROGRESS_INTERVAL = 0.5
#: Bounds of the outputs that are read one by one: at most this number, or this part of all jobs if that is more.
#: Above both, one request reads the whole workflow.
_MAX_SINGLE, _SINGLE_PART = 4, 16
#: Each server and domain of which this process has warned.
_warned: set[tuple[str, str]] = set()


class Progress(NamedTuple):
    """How far a run is."""

    #: As that of the run: ``running``, for example.
    status: str
    #: How many jobs have ended, in whatever way, of how many.
    done: int
    total: int
    #: How many of those that have ended have failed.
    failed: int

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} jobs{failed}, {self.status}"


def start(graph: Graph, result: Any, wanted: Any, options: WorkflowOptions, client: Client | None) -> Run[Any]:
    """Creates the workflow of a graph, whose function returned ``result``. May warn with :class:`LimitWarning`."""
    client = client or _connect.client()
    template = encode(result, f"workflow '{graph.name}', what it returns", lambda _: None)
    definition = description(graph, options)
    if "idempotency_key" not in definition:
        # A key that others may use again stands for a definition, which a trace would change for servers of old. The
        # headers of the call say the same.
        _telemetry.inject(definition)
    # A key of the user is in the definition, which takes all characters.
    key = definition.get("idempotency_key")
    try:
        created = client.create_workflow(definition, idempotency_key=None if key is not None else str(uuid.uuid4()))
    except IdempotencyMismatch as error:
        detail = f"the key '{key}' was used with other arguments or options, by run {error.workflow_id}"
        raise IdempotencyMismatch({**error.fields, "detail": detail}, status=error.status) from None
    _warn(created, client.server)
    return Run(created["id"], client, name=graph.name, template=template, wanted=wanted)


def _warn(created: api.Created, server: str) -> None:
    """Warns of the rate limits that limit nothing, once for each server and domain."""
    for one in created.get("warnings", ()):
        pair = server, one["domain"]
        if one["code"] == "no_rate_limit" and pair not in _warned:
            warnings.warn(f"{one['text']} (job '{one['job']}' at {server})", LimitWarning, stacklevel=user_level())
            # Only then: where a filter makes it an error, each start raises it.
            _warned.add(pair)


class Run(Generic[R]):
    """A workflow on the server.

    ``Run(id)`` finds one again in another process; its ``result()`` is then a dict of all outputs by job.
    """

    def __init__(
        self, id: str, client: Client | None = None, *, name: str = "", template: Any = ..., wanted: Any = Any
    ) -> None:
        self.id, self.name = id, name
        #: The client whose server has the workflow.
        self.client = client or _connect.client()
        self._template, self._wanted = template, wanted
        self._total = 0

    def __repr__(self) -> str:
        return f"<run {self.name or 'of a workflow'} {self.id}>"

    def show(self) -> api.Workflow:
        """The workflow as it is now, without its jobs."""
        return self.client.show_workflow(self.id)

    @property
    def status(self) -> str:
        """``pending``, ``running``, ``paused``, ``succeeded``, ``failed`` or ``cancelled``."""
        return self.show()["status"]

    def wait(self, timeout: float | None = None) -> str:
        """Waits for the end, and returns the status. After 5 s, a job that waits for a worker is named in one warning
        of the logger ``tidegate``.

        Raises:
            WorkflowNotDone: it is not over after ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        poll_seconds, has_logged = FIRST_POLL_SECONDS, False
        while True:
            left = poll_seconds if until is None else min(poll_seconds, until - time.monotonic())
            shown = self.client.show_workflow(self.id, wait=f"{max(int(left * 1000), 1)}ms")
            self.name, self._total = shown["name"], shown["job_counts"]["total"]
            if shown["status"] in OVER:
                return shown["status"]
            if until is not None and time.monotonic() >= until:
                counts = shown["job_counts"]
                raise WorkflowNotDone(
                    f"workflow '{self.name}' ({self.id}) is {shown['status']} after {timeout:g} s: "
                    f"{_ended(counts)} of {counts['total']} jobs have ended{self._held_up()}"
                )
            poll_seconds = POLL_SECONDS
            if not has_logged and (why := self._held_up()):
                has_logged = True
                # Here: it takes a tenth of the import of the package.
                import logging

                logging.getLogger("tidegate").warning("workflow '%s' (%s) waits%s", self.name, self.id, why)

    def result(self, timeout: float | None = None) -> R:
        """Waits for the end, and returns what the workflow's function returned, with the outputs in place of the
        handles.

        Raises:
            JobError: the workflow failed or was cancelled; the message names the job and its error.
            WorkflowNotDone: it is not over after ``timeout`` seconds.
            InvalidParam: it is not what the annotation of the function says. ``outputs()`` has it as it is.
        """
        result = tried(lambda: self._result(timeout))
        if isinstance(result, TidegateError):
            raise result
        return result

    def _result(self, timeout: float | None) -> R:
        status = self.wait(timeout)
        if status != "succeeded":
            raise self._failure(status)
        if self._template is ...:
            return cast("R", self.outputs())
        names: dict[str, Any] = {}
        resolve(self._template, lambda job: names.setdefault(job))
        outputs = self._outputs(list(names))
        result = resolve(self._template, outputs.get)
        return cast("R", decode(result, self._wanted, f"the result of workflow '{self.name}'"))

    async def aresult(self, timeout: float | None = None) -> R:
        """Waits and returns as :meth:`result` does, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.result, timeout)

    def output(self, job: str) -> Any:
        """The output of a job; ``None`` if it has none."""
        return self.client.show_job(self.id, job).get("output")

    def outputs(self) -> dict[str, Any]:
        """The outputs of the jobs that have one, by name."""
        return {name: output for name, output in self._outputs(None).items() if output is not None}

    def _outputs(self, names: list[str] | None) -> dict[str, Any]:
        """Outputs of these jobs, or of all. An answer has at most 64 MiB of them, so more are read one by one."""
        if names is None or len(names) > max(_MAX_SINGLE, self._total // _SINGLE_PART):
            with suppress(TooLarge):
                return {job["name"]: job.get("output") for job in self.jobs()}
        if names is None:
            names = [job["name"] for job in self.client.show_workflow(self.id, view="jobs").get("jobs", [])]
        return {name: self.output(name) for name in names}

    def jobs(self) -> list[api.Job]:
        """All jobs with their params, outputs and errors.

        Raises:
            TooLarge: outputs and errors have more than 64 MiB. ``output(job)`` and ``outputs()`` have no such bound.
        """
        return self.client.show_workflow(self.id, view="full").get("jobs", [])

    def events(self) -> Iterator[Event]:
        """Follows the workflow: an event for each change, until it is over. ``Client.watch_workflow`` goes on until it
        is removed, since a workflow that is over may be retried."""
        for event in self.client.watch_workflow(self.id):
            yield event
            # The events of its jobs come before that of the workflow.
            if event.kind == "workflow" and event.data.get("status") in OVER:
                return

    def progress(self) -> Iterator[Progress]:
        """Follows how many jobs have ended: yields at once, then when it has changed, at most twice a second, and last
        when the run is over."""
        latest: Progress | None = None
        while latest is None or latest.status not in OVER:
            shown = self.client.show_workflow(
                self.id, wait=None if latest is None else f"{PROGRESS_INTERVAL * 1000:.0f}ms"
            )
            self.name = shown["name"]
            counts = shown["job_counts"]
            found = Progress(shown["status"], _ended(counts), counts["total"], counts["failed"])
            if found != latest:
                yield found
            latest = found

    def watch(self, out: TextIO | None = None) -> str:
        """Shows the progress on ``out``, stderr if left out, until the run is over: on a terminal as a line that
        changes, elsewhere as a line for each change. Returns the status."""
        shown: TextIO = out or sys.stderr
        rewrites = shown.isatty()
        line, status = "", ""
        for found in self.progress():
            before, line, status = len(line), f"{self.name} {self.id}: {found}", found.status
            shown.write(f"\r{line.ljust(before)}" if rewrites else f"{line}\n")
            shown.flush()
        if rewrites:
            shown.write("\n")
        return status

    def cancel(self) -> None:
        """Cancels all jobs that have not ended."""
        self.client.cancel_workflow(self.id)

    def retry(self) -> None:
        """Runs the jobs again that failed or were cancelled."""
        shown = self.show()
        finished = shown["finished_at"]
        self.client.retry_workflow(self.id, {"as_of": finished} if finished else {})

    def _held_up(self) -> str:
        """Says of a job that waits for a worker why it does: often there is none that serves its queue."""
        try:
            ready = self.client.list_jobs(self.id, state="ready", limit=1)["items"]
            why = self.client.show_job(self.id, ready[0]["name"]).get("why_not_running") if ready else None
        except TidegateError:
            return ""
        return f". Job '{ready[0]['name']}': {why['text']}" if why else ""

    def _failure(self, status: str) -> TidegateError:
        # Without the outputs of all jobs, which may be too many for one answer.
        failed = self.client.list_jobs(self.id, state="failed", limit=1)["items"]
        if not failed:
            return JobError(f"workflow '{self.name}' ({self.id}) is {status}", workflow_id=self.id)
        job = self.client.show_job(self.id, failed[0]["name"])
        errors = job.get("errors") or [
            cast("api.AttemptError", {"kind": "", "message": "its lease was lost too often"})
        ]
        last = errors[-1]
        reason = f"{last['kind']}: {last['message']}" if last["kind"] else last["message"]
        error = JobError(
            f"workflow '{self.name}' ({self.id}) failed: job '{job['name']}', attempt {job['attempt']}: {reason}",
            job=job["name"],
            kind=last["kind"],
            workflow_id=self.id,
            trace=last.get("trace") or "",
        )
        if error.trace:
            error.__cause__ = RemoteError(error.trace)
        return error


def _ended(counts: api.JobCounts) -> int:
    return counts["succeeded"] + counts["failed"] + counts["cancelled"] + counts["skipped"]
