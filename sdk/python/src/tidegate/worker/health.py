"""HTTP for operators: `/healthz`, and `/metrics` for Prometheus."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable
from typing import Any

from .attempt_histogram import SHOWN, AttemptHistogram

# The time of a request, in seconds. Probes take milliseconds.
_TIMEOUT = 10.0
_MAX_CONNECTIONS = 16


class _Server(http.server.ThreadingHTTPServer):
    """Serves at most `_MAX_CONNECTIONS` connections at once, because this process extends the leases, too."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._places = threading.Semaphore(_MAX_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: probes break off as they like."""


def _shut(connection: socket.socket) -> None:
    # It may have ended at this moment.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Health:
    """Serves on a port. `healthy` says whether jobs can be run, and why not; `metrics` returns the figures."""

    def __init__(
        self, port: int, host: str, healthy: Callable[[], tuple[bool, str]], metrics: Callable[[], str]
    ) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _TIMEOUT

            def handle(self) -> None:
                # The timeout alone begins again with each byte.
                end = threading.Timer(_TIMEOUT, _shut, [self.connection])
                end.daemon = True
                end.start()
                try:
                    super().handle()
                finally:
                    end.cancel()

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics())
                elif self.path == "/healthz":
                    good, text = healthy()
                    self._answer(200 if good else 503, "text/plain; charset=utf-8", text + "\n")
                else:
                    self._answer(404, "text/plain; charset=utf-8", "there are /healthz and /metrics\n")

            def _answer(self, status: int, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: probes come every few seconds."""

        self._server = _Server((host, port), Handler)
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="tidegate-health", daemon=True).start()


def metrics(figures: AttemptHistogram, *, running: int, processes: int, claims: int, again: int, restarts: int) -> str:
    """Returns the figures in the text format of Prometheus."""
    lines = [
        "# HELP tidegate_worker_jobs_total Jobs that ended, by handler and outcome.",
        "# TYPE tidegate_worker_jobs_total counter",
    ]
    for (handler, outcome), buckets in sorted(figures.counts.items()):
        labels = f'handler="{_escaped(handler)}",outcome="{outcome}"'
        lines.append(f"tidegate_worker_jobs_total{{{labels}}} {sum(buckets.values())}")
    lines += [
        "# HELP tidegate_worker_job_seconds How long jobs ran.",
        "# TYPE tidegate_worker_job_seconds histogram",
    ]
    for handler in figures.handlers():
        label = f'handler="{_escaped(handler)}"'
        count = figures.count(handler)
        for bound in SHOWN:
            lines.append(
                f'tidegate_worker_job_seconds_bucket{{{label},le="{bound:g}"}} {figures.below(handler, bound)}'
            )
        lines.append(f'tidegate_worker_job_seconds_bucket{{{label},le="+Inf"}} {count}')
        lines.append(f"tidegate_worker_job_seconds_sum{{{label}}} {figures.seconds.get(handler, 0.0):.6f}")
        lines.append(f"tidegate_worker_job_seconds_count{{{label}}} {count}")
    for name, kind, value, text in (
        ("running", "gauge", running, "Jobs that run."),
        ("processes", "gauge", processes, "Processes that run jobs."),
        ("claims_total", "counter", claims, "Calls that asked for jobs."),
        ("report_retries_total", "counter", again, "Reports that were sent again."),
        ("process_restarts_total", "counter", restarts, "Processes that ended unasked and were started again."),
    ):
        lines += [
            f"# HELP tidegate_worker_{name} {text}",
            f"# TYPE tidegate_worker_{name} {kind}",
            f"tidegate_worker_{name} {value}",
        ]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
