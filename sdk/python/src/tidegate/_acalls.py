"""The calls of the API, for asyncio.

This file is written by scripts/generate.py from docs/openapi.json. Do not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ._http.address import part
from ._http.plan import creation_key, has_as_of
from ._span import Span, span
from .errors import TidegateError

if TYPE_CHECKING:
    from . import api


class AsyncCalls:
    """A method for each operation.

    All raise `Problem` when the server refuses, and `ServerUnavailable` when there is no answer.
    """

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: Any = None,
        key: str | None = None,
        safe: bool = True,
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Any:
        raise NotImplementedError

    async def is_alive(self) -> str:
        """Check that the process is alive. No token is needed."""
        try:
            answer: str = await self._call("GET", "/healthz", accept="text/plain")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def is_ready(self) -> str:
        """Check that the server can take requests. No token is needed."""
        try:
            answer: str = await self._call("GET", "/readyz", accept="text/plain")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_failures(self, *, range: Literal["5m", "15m", "1h", "24h"] | None = None) -> api.Failures:
        """List failures by handler and kind of error. It looks at the failed workflows that were created last, at most
        1,000, and counts each failed job of the range. Role: read. `range`: The time up to now; `1h` if left out.
        """
        try:
            answer: api.Failures = await self._call("GET", "/v1/failures", query={"range": range})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def remove_handler_limits(self, name: str) -> None:
        """Remove the limits of a handler. Role: admin."""
        try:
            await self._call("DELETE", f"/v1/handlers/{part(name)}/limits")
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_handler_limits(self, name: str) -> api.LimitsOf:
        """Show the limits of a handler. Role: read."""
        try:
            answer: api.LimitsOf = await self._call("GET", f"/v1/handlers/{part(name)}/limits")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def set_handler_limits(self, name: str, body: api.LimitsDefinition) -> api.LimitsOf:
        """Give all jobs of a handler limits. Workflows that are created from now on have them in front of each job's
        own limits. Role: admin.
        """
        try:
            answer: api.LimitsOf = await self._call("PUT", f"/v1/handlers/{part(name)}/limits", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def claim_jobs(self, body: api.Claim) -> api.ClaimResult:
        """Take ready jobs on lease. Role: work."""
        try:
            answer: api.ClaimResult = await self._call("POST", "/v1/jobs/claim", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def extend_leases(self, body: api.Extend) -> api.ExtendResult:
        """Keep jobs longer. Each lease has a status of its own, and so has each note. Role: work."""
        try:
            answer: api.ExtendResult = await self._call("POST", "/v1/jobs/extend", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def report_jobs(self, body: api.ReportRequest) -> api.ReportResult:
        """Report how attempts ended, and take more jobs. Each report has a status of its own. Jobs that became ready by
        the reports come first. Notes are kept before the reports are taken, and each has a status of its own, too.
        Role: work.
        """
        try:
            answer: api.ReportResult = await self._call("POST", "/v1/jobs/report", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_limits(
        self,
        *,
        queue: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> api.WaitingKeyPage:
        """List the limits that jobs wait under. By queue and handler, with what is used of each limit and who has its
        places. Role: read. `queue`: Only of this queue. `limit`: How many items at most. `cursor`: The `next_cursor` of
        the page before.
        """
        try:
            answer: api.WaitingKeyPage = await self._call(
                "GET",
                "/v1/limits",
                query={"queue": queue, "limit": limit, "cursor": cursor},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def check_limits(self, body: api.LimitCheck) -> api.LimitAnswer:
        """Ask what a request would be answered. Nothing is charged. What is paused for jobs alone is answered as if it
        were not. Role: read.
        """
        try:
            answer: api.LimitAnswer = await self._call("POST", "/v1/limits/check", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_configuration(
        self,
        *,
        domain: str | None = None,
        entries: str | None = None,
        find: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> api.LimitConfiguration:
        """Show the configuration of rate limits, with the hits of each limit. Of this server. Without a domain: all
        domains, where the configuration comes from, and the mistakes of the latest load when it was refused. With one:
        a level of its descriptors. Items have what is below them when there is room for all of it. Role: read.
        `domain`: The descriptors of this domain. `entries`: With `domain`: the descriptors below the one that these
        keys and values lead to, in JSON, such as `[["tenant","acme"],["path"]]`. `find`: The descriptors of all domains
        whose key or value contains this text. `limit`: How many domains and descriptors at most. `cursor`: The
        `next_cursor` of the page before.
        """
        try:
            answer: api.LimitConfiguration = await self._call(
                "GET",
                "/v1/limits/configuration",
                query={"domain": domain, "entries": entries, "find": find, "limit": limit, "cursor": cursor},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def remove_override(
        self,
        *,
        rule: str | None = None,
        domain: str | None = None,
        entries: str | None = None,
        effect: Literal["paused", "throttled", "scaled"] | None = None,
    ) -> None:
        """Resume a limit or a key. Role: admin. `rule`: All keys of this limit. `domain`: One key of this domain, with
        `entries`. `entries`: Pairs of a key and a value in JSON, such as `[["tenant","acme"]]`. `effect`: Only what
        does this; all if left out.
        """
        try:
            await self._call(
                "DELETE",
                "/v1/limits/overrides",
                query={"rule": rule, "domain": domain, "entries": entries, "effect": effect},
            )
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_overrides(self) -> api.OverrideList:
        """List limits and keys that are paused, throttled or scaled. Role: read."""
        try:
            answer: api.OverrideList = await self._call("GET", "/v1/limits/overrides")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def set_override(self, body: api.OverrideDefinition) -> api.LimitOverride:
        """Pause or scale a limit or a key for a while. It holds at this server at once, and within a second at all that
        share the Redis of its counters. It replaces an earlier one of the same effect. Without that Redis, it holds at
        this server until it stops. Role: admin.
        """
        try:
            answer: api.LimitOverride = await self._call("PUT", "/v1/limits/overrides", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_refusals(
        self,
        *,
        range: Literal["5m", "15m", "1h", "24h"] | None = None,
        rule: str | None = None,
    ) -> api.RefusedKeys:
        """List the keys that were refused. Of this server alone, since it started. Role: read. `range`: The time up to
        now; `1h` if left out. `rule`: Only keys of the limit with this path in the configuration.
        """
        try:
            answer: api.RefusedKeys = await self._call(
                "GET",
                "/v1/limits/refusals",
                query={"range": range, "rule": rule},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_limit_series(
        self,
        *,
        rule: list[str],
        range: Literal["5m", "15m", "1h", "24h"] | None = None,
    ) -> api.LimitSeriesList:
        """Show the rates of limits over a range. Of this server alone, since it started. Role: read. `rule`: The paths
        of limits in the configuration, each in a parameter of its own. `range`: The time up to now; `1h` if left out.
        """
        try:
            answer: api.LimitSeriesList = await self._call(
                "GET",
                "/v1/limits/series",
                query={"rule": rule, "range": range},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_top_keys(self) -> api.TopKeys:
        """Show the keys with the most hits, and the latest refusals. Of this server alone. Role: read."""
        try:
            answer: api.TopKeys = await self._call("GET", "/v1/limits/top")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def describe_api(self) -> dict[str, Any]:
        """Get this description. Role: read."""
        try:
            answer: dict[str, Any] = await self._call("GET", "/v1/openapi.json")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_overview(self, *, range: Literal["5m", "15m", "1h", "24h"] | None = None) -> api.Overview:
        """Show rates of the last hour, or of another range, at this server. Role: read. `range`: The time up to now;
        `1h` if left out.
        """
        try:
            answer: api.Overview = await self._call("GET", "/v1/overview", query={"range": range})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_queues(self, *, limit: int | None = None, cursor: str | None = None) -> api.QueuePage:
        """List queues by name. A queue exists from the first job that names it. It is forgotten some hours after the
        last workflow that can have such a job is removed, unless it is paused. Role: read. `limit`: How many items at
        most. `cursor`: The `next_cursor` of the page before.
        """
        try:
            answer: api.QueuePage = await self._call("GET", "/v1/queues", query={"limit": limit, "cursor": cursor})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def remove_queue_limits(self, name: str) -> None:
        """Remove the limits of a queue. Role: admin."""
        try:
            await self._call("DELETE", f"/v1/queues/{part(name)}/limits")
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_queue_limits(self, name: str) -> api.LimitsOf:
        """Show the limits of a queue. Role: read."""
        try:
            answer: api.LimitsOf = await self._call("GET", f"/v1/queues/{part(name)}/limits")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def set_queue_limits(self, name: str, body: api.LimitsDefinition) -> api.LimitsOf:
        """Give all jobs of a queue limits. Workflows that are created from now on have them in front of each job's own
        limits. Role: admin.
        """
        try:
            answer: api.LimitsOf = await self._call("PUT", f"/v1/queues/{part(name)}/limits", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def remove_queue_weights(self, name: str) -> None:
        """Remove the weights of a queue. Role: admin."""
        try:
            await self._call("DELETE", f"/v1/queues/{part(name)}/weights")
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_queue_weights(self, name: str) -> api.WeightsOf:
        """Show the weights of a queue. Role: read."""
        try:
            answer: api.WeightsOf = await self._call("GET", f"/v1/queues/{part(name)}/weights")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def set_queue_weights(self, name: str, body: api.WeightsDefinition) -> api.WeightsOf:
        """Give keys of a queue weights. They hold at once, on all servers of the store. Role: admin."""
        try:
            answer: api.WeightsOf = await self._call("PUT", f"/v1/queues/{part(name)}/weights", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def pause_queue(self, name: str) -> api.QueuePaused:
        """Hand out no jobs of a queue, on all servers of the store. Role: admin."""
        try:
            answer: api.QueuePaused = await self._call("POST", f"/v1/queues/{part(name)}:pause")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def resume_queue(self, name: str) -> api.QueuePaused:
        """Hand out jobs of a queue again. Role: admin."""
        try:
            answer: api.QueuePaused = await self._call("POST", f"/v1/queues/{part(name)}:resume")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def search(self, *, q: str) -> api.SearchResults:
        """Find workflows, names, tags, limits, queues, workers and handlers by a text. At most 20 of them, those first
        that have exactly this text, and then those that begin with it. Upper and lower case are the same. Role: read.
        `q`: The text; at most 200 characters.
        """
        try:
            answer: api.SearchResults = await self._call("GET", "/v1/search", query={"q": q})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_status(self) -> api.ServerStatus:
        """Show what works and what does not. Role: read."""
        try:
            answer: api.ServerStatus = await self._call("GET", "/v1/status")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def advance_clock(self, body: api.Advance) -> api.TestClock:
        """Move the clock of a server for tests. Only where TIDEGATE_TEST_CLOCK is true; `not_found` elsewhere. Takes
        either field. All that became due is done before the answer. Role: admin.
        """
        try:
            answer: api.TestClock = await self._call("POST", "/v1/test/clock:advance", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_version(self) -> api.Version:
        """Show the version of the server. Role: read."""
        try:
            answer: api.Version = await self._call("GET", "/v1/version")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_workers(self, *, limit: int | None = None, cursor: str | None = None) -> api.WorkerPage:
        """List workers by name, and what they run. Workers of all servers of the store. What other servers say of
        theirs is at most 5 s old. Role: read. `limit`: How many items at most. `cursor`: The `next_cursor` of the page
        before.
        """
        try:
            answer: api.WorkerPage = await self._call("GET", "/v1/workers", query={"limit": limit, "cursor": cursor})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def drain_worker(self, worker: str) -> api.WorkerDraining:
        """Give a worker no more jobs, on all servers of the store. It learns of that with its next call, or from its
        events. What it has, it may finish. Role: admin.
        """
        try:
            answer: api.WorkerDraining = await self._call("POST", f"/v1/workers/{part(worker)}:drain")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def undrain_worker(self, worker: str) -> api.WorkerDraining:
        """Give a worker jobs again. Role: admin."""
        try:
            answer: api.WorkerDraining = await self._call("POST", f"/v1/workers/{part(worker)}:undrain")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_workflows(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        error: str | None = None,
        handler: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        range: Span | None = None,
        id_prefix: str | None = None,
        ids: str | None = None,
        q: str | None = None,
        order: Literal["newest", "oldest"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> api.WorkflowPage:
        """List workflows. With `q`, a call reads at most 10,000 workflows for the text; `older` says that there are
        more. Names with the text, the tag, ids and keys are found without reading, however old. Role: read. `status`:
        With one of these statuses, separated by commas. `name`: Of this name. `tag`: With this tag. `error`: With a
        failed job that has this kind of error; only with the status `failed`. `handler`: With a failed job of this
        handler, and of that `error` if there is one; only with the status `failed`. `created_after`: Created then or
        later. `created_before`: Created before then. `range`: Created at most so long ago, such as `15m`. `id_prefix`:
        With an id that begins with these characters. `ids`: With one of these ids, separated by commas; at most 1,000.
        `q`: With this text in the name, a tag, or a failed job and its error; or as the idempotency key or the
        beginning of the id. In upper or lower case. `order`: By creation; `newest` first if left out. `limit`: How many
        items at most. `cursor`: The `next_cursor` of the page before.
        """
        try:
            answer: api.WorkflowPage = await self._call(
                "GET",
                "/v1/workflows",
                query={
                    "status": status,
                    "name": name,
                    "tag": tag,
                    "error": error,
                    "handler": handler,
                    "created_after": created_after,
                    "created_before": created_before,
                    "range": None if range is None else span(range),
                    "id_prefix": id_prefix,
                    "ids": ids,
                    "q": q,
                    "order": order,
                    "limit": limit,
                    "cursor": cursor,
                },
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def create_workflow(self, body: api.Definition, *, idempotency_key: str | None = None) -> api.Created:
        """Create a workflow, and start it. Role: work. `idempotency_key`: The same as the field idempotency_key."""
        try:
            answer: api.Created = await self._call(
                "POST",
                "/v1/workflows",
                body=body,
                key=creation_key(idempotency_key, body),
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def delete_workflow(self, id: str) -> None:
        """Remove a workflow that is over or was never started. Role: admin."""
        try:
            await self._call("DELETE", f"/v1/workflows/{part(id)}")
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_workflow(
        self,
        id: str,
        *,
        view: Literal["summary", "jobs", "full"] | None = None,
        wait: Span | None = None,
    ) -> api.Workflow:
        """Show a workflow. Role: read. `view`: How much of it; `summary` if left out. `full` has params, outputs and
        errors of jobs. `wait`: Wait until it is over, at most so long: up to 60s.
        """
        try:
            answer: api.Workflow = await self._call(
                "GET",
                f"/v1/workflows/{part(id)}",
                query={"view": view, "wait": None if wait is None else span(wait)},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def draw_dot(self, id: str) -> str:
        """Draw the graph for Graphviz. Role: read."""
        try:
            answer: str = await self._call("GET", f"/v1/workflows/{part(id)}/graph.dot", accept="text/vnd.graphviz")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def lay_out_graph(self, id: str) -> api.GraphLayout:
        """Get the places of all boxes and lines of a picture. Role: read."""
        try:
            answer: api.GraphLayout = await self._call("GET", f"/v1/workflows/{part(id)}/graph.json")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def draw_mermaid(self, id: str) -> str:
        """Draw the graph for Mermaid. Role: read."""
        try:
            answer: str = await self._call("GET", f"/v1/workflows/{part(id)}/graph.mmd", accept="text/vnd.mermaid")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def draw_svg(self, id: str) -> str:
        """Draw the graph as SVG. Role: read."""
        try:
            answer: str = await self._call("GET", f"/v1/workflows/{part(id)}/graph.svg", accept="image/svg+xml")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def draw_text(
        self,
        id: str,
        *,
        width: int | None = None,
        ascii: bool | None = None,
        colour: bool | None = None,
    ) -> str:
        """Draw the graph for a terminal. Role: read. `width`: Columns. `ascii`: Use only ASCII characters. `colour`:
        Colour it for a terminal.
        """
        try:
            answer: str = await self._call(
                "GET",
                f"/v1/workflows/{part(id)}/graph.txt",
                query={"width": width, "ascii": ascii, "colour": colour},
                accept="text/plain",
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def list_jobs(
        self,
        id: str,
        *,
        state: str | None = None,
        q: str | None = None,
        handler: str | None = None,
        order: Literal["definition", "attention"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> api.JobPage:
        """List the jobs of a workflow. Role: read. `state`: In one of these states, separated by commas. `limited`,
        `blocked` and `retrying` are some of those that are ready, waiting and scheduled. `q`: With this text in the
        name, in upper or lower case. `handler`: Of this handler. `order`: As in the definition if left out;
        `attention`: those that failed, run, are retried, limited, ready, scheduled, waiting, blocked, and then the
        others. `limit`: How many items at most. `cursor`: The `next_cursor` of the page before.
        """
        try:
            answer: api.JobPage = await self._call(
                "GET",
                f"/v1/workflows/{part(id)}/jobs",
                query={"state": state, "q": q, "handler": handler, "order": order, "limit": limit, "cursor": cursor},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def show_job(self, id: str, name: str) -> api.Job:
        """Show a job, with its params, output and errors. Role: read."""
        try:
            answer: api.Job = await self._call("GET", f"/v1/workflows/{part(id)}/jobs/{part(name)}")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def read_job_log(
        self,
        id: str,
        name: str,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> api.LogPage:
        """Read what workers wrote to the log of a job. The oldest lines first. To follow it, ask again with `next` as
        `after`. Lines may be lost when the store fails. Role: read. `after`: The `next` of an earlier page: what
        follows it. `limit`: How many lines at most.
        """
        try:
            answer: api.LogPage = await self._call(
                "GET",
                f"/v1/workflows/{part(id)}/jobs/{part(name)}/log",
                query={"after": after, "limit": limit},
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def cancel_job(self, id: str, name: str) -> api.Done:
        """Cancel a job. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}/jobs/{part(name)}:cancel")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def mark_job_succeeded(self, id: str, name: str, body: api.MarkSucceeded | None = None) -> api.Done:
        """Count a job as succeeded. Role: admin."""
        try:
            answer: api.Done = await self._call(
                "POST",
                f"/v1/workflows/{part(id)}/jobs/{part(name)}:mark_succeeded",
                body=body,
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def retry_job(self, id: str, name: str, body: api.Retry | None = None) -> api.Done:
        """Run a job again that failed or was cancelled. Role: admin."""
        try:
            answer: api.Done = await self._call(
                "POST",
                f"/v1/workflows/{part(id)}/jobs/{part(name)}:retry",
                body=body,
                safe=has_as_of(body),
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def skip_job(self, id: str, name: str) -> api.Done:
        """Skip a job. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}/jobs/{part(name)}:skip")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def cancel_workflow(self, id: str) -> api.Done:
        """Cancel all jobs that have not ended. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}:cancel")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def expire_workflow(self, id: str, body: api.Expire) -> api.Done:
        """Change how long a workflow is kept. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}:expire", body=body)
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def pause_workflow(self, id: str) -> api.Done:
        """Hand out no more jobs of a workflow. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}:pause")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def restart_jobs(self, id: str, body: api.Restart) -> api.Done:
        """Run jobs again that have ended. Role: admin."""
        try:
            answer: api.Done = await self._call(
                "POST",
                f"/v1/workflows/{part(id)}:restart",
                body=body,
                safe=has_as_of(body),
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def resume_workflow(self, id: str) -> api.Done:
        """Hand out jobs of a workflow again. Role: admin."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}:resume")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def retry_workflow(self, id: str, body: api.Retry | None = None) -> api.Done:
        """Run all jobs again that failed or were cancelled. Role: admin."""
        try:
            answer: api.Done = await self._call(
                "POST",
                f"/v1/workflows/{part(id)}:retry",
                body=body,
                safe=has_as_of(body),
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def start_workflow(self, id: str) -> api.Done:
        """Start a workflow. Role: work."""
        try:
            answer: api.Done = await self._call("POST", f"/v1/workflows/{part(id)}:start")
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def create_workflows(self, body: api.Batch, *, idempotency_key: str | None = None) -> api.BatchResult:
        """Create many workflows. Each workflow has a status of its own: those without mistakes are created. Role: work.
        `idempotency_key`: The same as the field idempotency_key.
        """
        try:
            answer: api.BatchResult = await self._call(
                "POST",
                "/v1/workflows:batch",
                body=body,
                key=creation_key(idempotency_key, body),
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def act_on_workflows(self, body: api.Bulk) -> api.BulkResult:
        """Do the same to many workflows. Role: admin."""
        try:
            answer: api.BulkResult = await self._call("POST", "/v1/workflows:bulk", body=body, safe=has_as_of(body))
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def find_workflow(self, *, key: str) -> api.Workflow:
        """Find a workflow by its idempotency key. Role: read. `key`: The idempotency key: any text."""
        try:
            answer: api.Workflow = await self._call("GET", "/v1/workflows:byKey", query={"key": key})
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None

    async def count_workflows(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        error: str | None = None,
        handler: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        range: Span | None = None,
        id_prefix: str | None = None,
        ids: str | None = None,
        q: str | None = None,
        by: Literal["name"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> api.WorkflowCount:
        """Count workflows by status. Role: read. `status`: With one of these statuses, separated by commas. `name`: Of
        this name. `tag`: With this tag. `error`: With a failed job that has this kind of error; only with the status
        `failed`. `handler`: With a failed job of this handler, and of that `error` if there is one; only with the
        status `failed`. `created_after`: Created then or later. `created_before`: Created before then. `range`: Created
        at most so long ago, such as `15m`. `id_prefix`: With an id that begins with these characters. `ids`: With one
        of these ids, separated by commas; at most 1,000. `q`: With this text in the name, a tag, or a failed job and
        its error; or as the idempotency key or the beginning of the id. In upper or lower case. `by`: Count for each
        name, too. `limit`: With `by=name`: how many names at most. `cursor`: With `by=name`, `error` or `handler`: the
        `next_cursor` of the page before.
        """
        try:
            answer: api.WorkflowCount = await self._call(
                "GET",
                "/v1/workflows:count",
                query={
                    "status": status,
                    "name": name,
                    "tag": tag,
                    "error": error,
                    "handler": handler,
                    "created_after": created_after,
                    "created_before": created_before,
                    "range": None if range is None else span(range),
                    "id_prefix": id_prefix,
                    "ids": ids,
                    "q": q,
                    "by": by,
                    "limit": limit,
                    "cursor": cursor,
                },
            )
            return answer
        except TidegateError as caught:
            raise caught.with_traceback(None) from None
