"""OpenTelemetry: the trace of the code that starts a workflow goes on in its jobs, and a program without it notices
nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import tidegate
from test_worker_support import Server, Worker, until
from tidegate import api, current, job, testing, workflow

SDK = Path(__file__).parents[1]
EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module")
def spans() -> Iterator[InMemorySpanExporter]:
    # A process can be given a provider once.
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    yield EXPORTER
    provider.shutdown()


@job(queue="web")
def fetch(day: str) -> list[int]:
    return [1, 2, len(day)]


@job
async def add(rows: list[int]) -> int:
    return sum(rows)


@workflow
def report(day: str) -> int:
    return add.step(fetch(day))


@job
def everything(**more: Any) -> dict[str, Any]:
    return more


@job(retries=1, backoff="1s")
def unsteady() -> int:
    if current().attempt == 1:
        raise ConnectionError("the vendor does not answer")
    return current().attempt


@job
def busy() -> str:
    # Throttled once: its attempt does not count, so only the spans tell the two apart.
    if len(finished("job busy")) == 0:
        current().throttle("1s")
    return "done"


@job
def album(day: str) -> int:
    return current().spawn(report, day).result()


@pytest.fixture
def server(spans: InMemorySpanExporter) -> Iterator[testing.Server]:
    # Other tests of this process have jobs with the same names.
    with testing.server(jobs=[fetch, add]) as one:
        spans.clear()
        yield one


def finished(name: str) -> list[ReadableSpan]:
    name = name.replace("job ", f"job {__name__}.")
    return [one for one in EXPORTER.get_finished_spans() if one.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    """The trace of a span and the span that it is a child of."""
    return span.get_span_context().trace_id, span.parent.span_id if span.parent else 0


def test_jobs_are_children_of_their_creators_span(server: testing.Server) -> None:
    with trace.get_tracer("app").start_as_current_span("request") as request:
        run = server.run(report, "monday")
    assert run.result() == 9
    creator = request.get_span_context()
    for place, name in enumerate(["fetch", "add"], 1):
        [span] = finished(f"job {name}")
        assert ids(span) == (creator.trace_id, creator.span_id)
        assert span.kind is SpanKind.CONSUMER
        assert span.status.status_code is StatusCode.UNSET
        assert dict(span.attributes or {}) == {
            "messaging.system": "tidegate",
            "messaging.destination.name": "web" if place == 1 else "default",
            "tidegate.workflow.id": run.id,
            "tidegate.job": name,
            "tidegate.attempt": 1,
        }


def test_without_a_span_of_the_creator_each_job_begins_a_trace(server: testing.Server) -> None:
    run = server.run(report, "monday")
    assert "globals" not in server.client.show_workflow(run.id)
    traces = {ids(span) for span in EXPORTER.get_finished_spans()}
    assert len(traces) == 2
    assert {parent for _, parent in traces} == {0}


def test_a_failed_attempt_is_an_error_and_a_throttled_one_is_none(server: testing.Server) -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        assert server.run(unsteady).result() == 2
        assert server.run(busy).result() == "done"
    first, second = finished("job unsteady")
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "ConnectionError: the vendor does not answer"
    assert second.status.status_code is StatusCode.UNSET
    assert ids(first) == ids(second)
    assert [one.status.status_code for one in finished("job busy")] == [StatusCode.UNSET, StatusCode.UNSET]


def test_the_trace_goes_on_in_children_that_are_found_again(server: testing.Server) -> None:
    with trace.get_tracer("app").start_as_current_span("request") as request:
        run = album.enqueue("monday")
    assert server.finish(run).result() == 9
    creator = request.get_span_context()
    # The job went back to its queue while its child ran, and then found the same child.
    assert len(finished("job album")) >= 2
    [fetched], [added] = finished("job fetch"), finished("job add")
    assert ids(fetched) == ids(added) == (creator.trace_id, creator.span_id)
    assert all(one.status.status_code is StatusCode.UNSET for one in EXPORTER.get_finished_spans())


def test_a_key_stands_for_the_same_definition_in_every_trace(server: testing.Server) -> None:
    one = report.options(key="report/monday")
    with trace.get_tracer("app").start_as_current_span("first"):
        first = one.start("monday")
    with trace.get_tracer("app").start_as_current_span("second"):
        assert one.start("monday").id == first.id


def test_jobs_of_a_key_are_in_the_trace_of_who_created_them(server: testing.Server) -> None:
    one = report.options(key="report/tuesday")
    with trace.get_tracer("app").start_as_current_span("request") as request:
        run = one.start("monday")
    assert server.finish(run).result() == 9
    creator = request.get_span_context()
    [fetched], [added] = finished("job fetch"), finished("job add")
    assert ids(fetched) == ids(added) == (creator.trace_id, creator.span_id)


def test_a_plain_call_of_the_client_is_in_the_trace(server: testing.Server) -> None:
    definition: api.Definition = {
        "name": "w",
        "jobs": [{"name": "add", "handler": add.handler, "params": {"rows": [1]}}],
    }
    with trace.get_tracer("app").start_as_current_span("request") as request:
        server.client.create_workflow(definition)
        server.client.create_workflows({"workflows": [definition]})
    assert server.work() == 2
    creator = request.get_span_context()
    assert [ids(span) for span in finished("job add")] == [(creator.trace_id, creator.span_id)] * 2


@pytest.fixture
def collected() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a collector of OpenTelemetry, and the messages that it got."""
    messages: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = Thread(target=collector.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{collector.server_port}", messages
        collector.shutdown()
        thread.join()


def has_span(messages: list[bytes], span: int, parent: int) -> bool:
    """Whether an exported span has this id and this parent: fields 2 and 4 of OTLP, each of eight bytes."""
    own, above = (b"%c\x08%b" % (tag, one.to_bytes(8, "big")) for tag, one in ((0x12, span), (0x22, parent)))
    found = [message[message.index(own) :] for message in messages if own in message]
    return any(above in rest[:600] for rest in found)


def test_attempts_are_children_of_the_servers_spans(
    spans: InMemorySpanExporter, collected: tuple[str, list[bytes]]
) -> None:
    url, messages = collected
    with testing.server(
        jobs=[fetch, add, unsteady],
        TRACING_ENABLED="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=url,
        OTEL_BSP_SCHEDULE_DELAY="20",
    ) as server:
        spans.clear()
        with trace.get_tracer("app").start_as_current_span("request") as request:
            server.run(report, "monday")
            # The creation of these has a span of the server.
            run = unsteady.options(key="k").enqueue()
        server.finish(run)
        [fetched], [added], tried = finished("job fetch"), finished("job add"), finished("job unsteady")
        assert len(tried) == 2
        parents = [ids(span) for span in (fetched, added, *tried)]
        # Each is sent by the server, which knows it by the same number.
        until(
            lambda: all(b"\x12\x08" + span.to_bytes(8, "big") in b"".join(messages) for _, span in parents),
            "the server's spans arrive",
        )
    creator = request.get_span_context()
    assert {trace_id for trace_id, _ in parents} == {creator.trace_id}
    above = [parent for _, parent in parents]
    assert len(set(above)) == 4
    assert creator.span_id not in above
    assert all(has_span(messages, span, creator.span_id) for span in above[:2])
    assert not any(has_span(messages, span, creator.span_id) for span in above[2:])


def test_the_trace_is_no_param_of_a_function(server: testing.Server) -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        assert server.run(everything, day="monday").result() == {"day": "monday"}


@pytest.mark.parametrize(
    "left", ["text", 7, [1], {"traceparent": 7}, {"traceparent": ["00"], "tracestate": None}, {"traceparent": "00-x"}]
)
def test_whatever_is_in_the_place_of_the_trace_the_job_runs(server: testing.Server, left: Any) -> None:
    server.client.create_workflow(
        {
            "name": "w",
            "globals": {"$trace": left},
            "jobs": [{"name": "add", "handler": add.handler, "params": {"rows": [1]}}],
        }
    )
    assert server.work() == 1
    [span] = finished("job add")
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET


APP = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from tidegate import job

def line(span):
    return span.to_json(indent=None) + "\\n"

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=open("spans", "a"), formatter=line)))
trace.set_tracer_provider(provider)

@job
def first():
    with trace.get_tracer("app").start_as_current_span("in first"):
        return 1

@job
async def second(number):
    return number + 1
"""


def test_a_worker_goes_on_with_the_trace(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    (folder := tmp_path / "worker").mkdir()
    (folder / "app.py").write_text(APP)
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")

    @job(handler="app.first")
    def first() -> int:
        return 0

    @job(handler="app.second")
    async def second(number: int) -> int:
        return number

    @workflow
    def both() -> int:
        return second.step(first())

    worker = Worker(server, folder)
    try:
        with tidegate.using(server.client), trace.get_tracer("app").start_as_current_span("request") as request:
            assert both.start().result(timeout=30) == 2
        assert worker.stop() == 0
    finally:
        worker.close()
        server.close()
    written = {one["name"]: one for one in map(json.loads, (folder / "spans").read_text().splitlines())}
    creator = request.get_span_context()
    assert set(written) == {"job app.first", "in first", "job app.second"}
    assert {int(one["context"]["trace_id"], 16) for one in written.values()} == {creator.trace_id}
    assert (
        int(written["job app.first"]["parent_id"], 16)
        == int(written["job app.second"]["parent_id"], 16)
        == creator.span_id
    )
    assert written["in first"]["parent_id"] == written["job app.first"]["context"]["span_id"]


PLAIN = """
import sys
import tidegate.testing, tidegate.worker.engine, tidegate.limits

@tidegate.job
def one():
    return 1

with tidegate.testing.server() as server:
    run = server.run(one)
    assert run.result() == 1
    assert run.jobs()[0]["params"] == {}
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_program_without_it_imports_nothing_of_it(is_installed: bool) -> None:
    # -S: without the packages of the environment, and so without OpenTelemetry.
    command = [sys.executable, *([] if is_installed else ["-S"]), "-c", PLAIN]
    environment = {**os.environ, "PYTHONPATH": str(SDK / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "[]\n", done.stderr


def test_a_namespace_alone_is_not_opentelemetry(tmp_path: Path) -> None:
    # Other packages put modules into the same namespace.
    (tmp_path / "opentelemetry" / "proto").mkdir(parents=True)
    (tmp_path / "opentelemetry" / "proto" / "__init__.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": f"{SDK / 'src'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import opentelemetry.proto\n{PLAIN}"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout == "['opentelemetry', 'opentelemetry.proto']\n", done.stderr
