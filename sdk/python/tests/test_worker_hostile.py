"""Jobs that do what a worker must outlive, and something else that answers in the server's place."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from test_worker_support import Server, Worker
from tidegate._http.call import Lost
from tidegate.worker.calls import _checked  # pyright: ignore[reportPrivateUsage]

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
