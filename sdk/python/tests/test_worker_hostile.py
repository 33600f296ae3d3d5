"""Jobs that do what a worker must outlive, and something else that answers in the server's place."""

from __future__ import annotations

import io
import json
import pathlib
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from test_worker_support import Server, Worker, until
from tidegate._http.call import Lost
from tidegate.worker import health
from tidegate.worker.calls import _checked  # pyright: ignore[reportPrivateUsage]
from tidegate.worker.console import Console

APP = """
import asyncio, multiprocessing, os, sys, time
from tidegate import job

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

@job
def mute():
    raise Mute()

@job
async def amute():
    raise Mute()

@job
async def exits_in_a_task():
    async def inner():
        sys.exit(4)
    await asyncio.create_task(inner())

@job
async def stops_the_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)
    return "went on"

@job
def forks():
    child = os.fork()
    if child == 0:
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

@job
def forks_and_returns():
    child = os.fork()
    if child == 0:
        return "of the child"
    os.waitpid(child, 0)
    return "of the parent"

@job
def terminates():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    time.sleep(0.1)
    process.terminate()
    process.join(10)
    return process.exitcode

@job
async def leaves_a_thread():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)

@job
async def works():
    return "works"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Worker]]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.module = "hostile"
    folder = tmp_path_factory.mktemp("worker")
    (folder / "hostile.py").write_text(APP)
    worker = Worker(server, folder, app="hostile").ready()
    yield server, worker
    worker.close()
    server.close()


@pytest.mark.parametrize(
    ("handler", "state", "found"),
    [
        ("mute", "failed", "Mute"),
        ("amute", "failed", "Mute"),
        ("exits_in_a_task", "failed", "SystemExit"),
        ("stops_the_loop", "succeeded", "went on"),
        ("forks", "succeeded", 7),
        ("forks_and_returns", "succeeded", "of the parent"),
        ("terminates", "succeeded", -15),
    ],
)
def test_the_job_ends_and_others_go_on(running: tuple[Server, Worker], handler: str, state: str, found: object) -> None:
    server, _ = running
    job = server.job(server.create(handler))
    assert (job["state"], job["lost"]) == (state, 0)
    assert (job["output"] if state == "succeeded" else job["errors"][-1]["kind"]) == found
    assert server.job(server.create("works"))["output"] == "works"


def test_a_thread_that_is_left_behind_does_not_hold_the_worker_up(
    running: tuple[Server, Worker], tmp_path: pathlib.Path
) -> None:
    server, _ = running
    (tmp_path / "hostile.py").write_text(APP)
    worker = Worker(server, tmp_path, "--name", "leaves", app="hostile:leaves_a_thread").ready()
    assert server.job(server.create("leaves_a_thread"))["state"] == "succeeded"
    server.client.drain_worker("leaves")
    assert worker.process.wait(10) == 0


@pytest.mark.parametrize(
    "answer", [None, [], "ok", {}, {"jobs": None}, {"jobs": [{"x": 1}]}, {"jobs": []}, {"jobs": [], "reports": [1]}]
)
def test_an_answer_that_is_none_counts_as_no_answer(answer: object) -> None:
    with pytest.raises(Lost, match="does not answer like Tidegate"):
        _checked(answer, 1)


JOB: dict[str, Any] = {
    "lease": "01K-0-a",
    "handler": "works",
    "job": "works",
    "queue": "default",
    "workflow_id": "01K",
    "params": {},
    "inputs": [],
    "attempt": 1,
    "timeout_ms": None,
}


@pytest.mark.parametrize(
    "strange",
    [
        {"handler": ["x"]},
        {"lease": "\ud800"},
        {"lease": "a\nb"},
        {"lease": 1},
        {"timeout_ms": "soon"},
        {"timeout_ms": 10**300},
        {"params": []},
        {"inputs": None},
        {"workflow_id": None},
    ],
)
def test_a_strange_job_counts_as_no_answer(strange: dict[str, Any]) -> None:
    """A thread of the worker died of it, and the worker stood still."""
    assert _checked({"jobs": [JOB]}, 0) == {"jobs": [JOB]}
    with pytest.raises(Lost, match="does not answer like Tidegate"):
        _checked({"jobs": [JOB, {**JOB, **strange}]}, 0)


def test_a_number_that_python_does_not_read_fails_its_own_job_alone(running: tuple[Server, Worker]) -> None:
    """The whole answer was dropped, and all jobs in it lost their leases."""
    server, worker = running
    job = {"name": "works", "handler": "hostile.works"}
    workflows = [{"name": "w", "jobs": [job]} for _ in range(9)]
    workflows.append({"name": "w", "jobs": [{**job, "params": {"x": ["LONG"]}}]})
    body = json.dumps({"workflows": workflows}).replace('"LONG"', "1" * 5000).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/workflows:batch", body, headers, method="POST")
    with urllib.request.urlopen(request) as answer:
        *good, long = [item["id"] for item in json.load(answer)["items"]]
    until(lambda: server.client.show_workflow(long)["status"] == "failed", "it has failed")
    assert [server.job(one)["state"] for one in good] == ["succeeded"] * 9
    with urllib.request.urlopen(f"{server.url}/v1/workflows/{long}/jobs/works") as answer:
        text = answer.read().decode()
    assert "a whole number of 5000 digits" in text
    assert '"lost":0' in text
    assert worker.process.poll() is None


def test_control_characters_do_not_reach_the_terminal() -> None:
    out = io.StringIO()
    Console(out=out).log("one\n12:00:00 forged \x1b[31m")
    Console(out=out, as_json=True).log("two", more="c1 \x9b31m \u2028")
    plain, as_json, end = out.getvalue().split("\n")
    assert plain.endswith(" one 12:00:00 forged ?[31m")
    assert json.loads(as_json)["more"] == "c1 \x9b31m \u2028"
    assert (as_json.isprintable(), end) == (True, "")


def test_few_connections_are_open_at_the_health_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_TIMEOUT", 0.5)
    served = health.Health(0, "127.0.0.1", lambda: (True, "ok"), lambda: "")
    served.start()
    address = ("127.0.0.1", served.port)
    slow = [socket.create_connection(address) for _ in range(40)]
    for one in slow:
        one.sendall(b"GET ")
    # Those without a place are closed at once, the others when their time is over, although they go on sending.
    until(lambda: all(_is_closed(one) for one in slow), "they are closed")
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/healthz") as answer:
        assert answer.read() == b"ok\n"


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.001)
    try:
        connection.sendall(b"x")
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
