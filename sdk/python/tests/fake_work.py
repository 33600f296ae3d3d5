"""A server that hands out the jobs of a test, and keeps the messages of a worker. It can answer at a given moment what
the real one cannot be made to answer."""

from __future__ import annotations

import http.server
import itertools
import json
import select
import socket
import threading
import time
from typing import Any

from test_worker_support import until


class FakeWork:
    """`give` hands out jobs with the next claim, whatever its limit is."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.extends: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        #: The paths of the streams that were asked for. There are none.
        self.streams: list[str] = []
        #: While they are not set, extensions and reports are not answered.
        self.answers_extensions = threading.Event()
        self.answers_extensions.set()
        self.answers_reports = threading.Event()
        self.answers_reports.set()
        #: Leases that are over, and why.
        self.lost: dict[str, str] = {}
        self._jobs: list[dict[str, Any]] = []
        self._parting: list[dict[str, Any]] = []
        self._given: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                data = json.dumps(outer._answer(self.path, body, self.connection)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                outer.streams.append(self.path)
                self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Workers are killed in the middle of a call."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> FakeWork:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def give(self, *jobs: tuple[str, dict[str, Any]], parting: bool = False, **more: Any) -> list[str]:
        """Hands out jobs of `app`, and returns their leases. `more` are further fields of them. `parting`: to a caller
        that leaves a claim, as an answer that was on its way."""
        made: list[dict[str, Any]] = []
        for handler, params in jobs:
            lease = f"01K{next(self._numbers):05}-0-a"
            job = {"lease": lease, "handler": f"app.{handler}", "job": handler, "queue": "default", "params": params}
            rest = {"workflow_id": lease[:8], "workflow_name": "w", "attempt": 1, "fence": 1, "lease_expires_at": ""}
            made.append({**job, **rest, "inputs": [], "omitted_inputs": [], "timeout_ms": None, **more})
        with self._changed:
            self._given.update({one["lease"]: one for one in made})
            if parting:
                self._parting += made
            else:
                self._jobs += made
            self._changed.notify_all()
        return [one["lease"] for one in made]

    def report(self, lease: str, seconds: float = 10) -> dict[str, Any]:
        """Waits for the report of a job that began."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.reports if one["lease"] == lease and one["outcome"] != "not_begun"]

        until(lambda: bool(found()), f"a report of {lease}", seconds)
        return found()[0]

    def not_begun(self, *leases: str, seconds: float = 10) -> None:
        """Waits until all of these were returned unbegun."""
        unrun = [{"lease": lease, "outcome": "not_begun"} for lease in leases]
        until(lambda: all(one in self.reports for one in unrun), "they are returned", seconds)

    def _answer(self, path: str, body: dict[str, Any], caller: socket.socket) -> dict[str, Any]:
        if path == "/v1/jobs/claim":
            return {"jobs": self._claim(body, float(body.get("wait", "0s")[:-1]), caller)}
        if path == "/v1/jobs/report":
            self._reported(body["reports"])
            self.answers_reports.wait(10)
            taken = [{"status": 200, "job_state": "ready", "workflow_status": "running"} for _ in body["reports"]]
            return {"reports": taken, "jobs": self._claim(body["claim"], 0.0, caller) if "claim" in body else []}
        assert path == "/v1/jobs/extend", path
        self.extends.append(body)
        self.answers_extensions.wait(10)
        return {"leases": [self._extended(lease) for lease in body["leases"]]}

    def _reported(self, reports: list[dict[str, Any]]) -> None:
        with self._changed:
            self.reports += reports
            # Jobs that were not begun are ready again. A busy machine may be late to begin it.
            self._jobs += [self._given[one["lease"]] for one in reports if one["outcome"] == "not_begun"]
            self._changed.notify_all()

    def _extended(self, lease: str) -> dict[str, Any]:
        if (reason := self.lost.get(lease)) is None:
            return {"status": 200, "lease_expires_at": ""}
        return {"status": 409, "error": {"code": "lease_lost", "reason": reason, "detail": f"lost ({reason})"}}

    def _claim(self, claim: dict[str, Any], wait: float, caller: socket.socket) -> list[dict[str, Any]]:
        ends = time.monotonic() + wait
        with self._changed:
            self.claims.append(claim)
            while not self._jobs and (left := ends - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.02))
                if select.select([caller], [], [], 0)[0]:
                    jobs, self._parting = self._parting, []
                    return jobs
            # A caller that has left takes no other jobs.
            if select.select([caller], [], [], 0)[0]:
                return []
            jobs, self._jobs = self._jobs, []
        return jobs
