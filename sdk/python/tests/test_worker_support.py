"""Servers and workers in processes of their own, for the tests of the worker."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tidegate import Client
from tidegate.worker.leases import LeaseTable

APP = """
import asyncio, ctypes, logging, os, pathlib, time
from tidegate import job, current, NonRetryable, Retry, Throttled

@job
def noop():
    return None

@job
async def anoop():
    return "async"

@job
def add(a: int, b: int) -> int:
    return a + b

@job
def nap(seconds: float):
    time.sleep(seconds)
    return os.getpid()

@job
async def anap(seconds: float):
    await asyncio.sleep(seconds)

@job
def boom():
    raise ValueError("it broke\\nsecond line")

@job
def never():
    raise NonRetryable("no use")

@job
def again():
    if current().attempt == 1:
        raise Retry("later", after="1s")
    return current().attempt

@job
def large():
    return "x" * 2_000_000

@job
def strange():
    return {"a": object()}

@job
def surrogate():
    return "\\ud800"

@job
def leaves():
    raise SystemExit(3)

@job
def talks():
    logging.getLogger("app").info("hello %s", "you")
    logging.getLogger("app").debug("not this")
    current().log("a line")
    current().log("x" * 5000)
    for n in range(300):
        current().log(f"many {n}")
    current().progress(40, "y" * 400)
    time.sleep(1.2)

@job
def begins(file: str, seconds: float):
    pathlib.Path(file).write_text("begun")
    time.sleep(seconds)

@job
def waits(file: str):
    pathlib.Path(file).write_text("begun")
    for _ in range(600):
        if current().wait_cancelled(0.05):
            pathlib.Path(file).write_text(current().reason)
            return "late"
    return "never"

@job
async def awaits(file: str):
    pathlib.Path(file).write_text("begun")
    try:
        await asyncio.sleep(30)
    finally:
        pathlib.Path(file).write_text(current().reason or "none")

@job
def holds(seconds: int):
    # PyDLL keeps the interpreter's lock during the call.
    ctypes.PyDLL(None).sleep(seconds)
    return "held"

@job
def crashes():
    os.kill(os.getpid(), 9)
    time.sleep(60)

@job
def exits():
    os._exit(3)

@job
def faults():
    ctypes.string_at(0)

@job
def extends(file: str):
    current().extend("10m")
    pathlib.Path(file).write_text("extended")
    time.sleep(4)

@job
def writes(file: str, size: int = 1):
    with open(file, "a") as out:
        out.write(f"{current().workflow_id} {current().attempt} {current().fence}\\n")
"""


class Server:
    """The server's program in a folder. It keeps its port when it is started again."""

    def __init__(self, folder: pathlib.Path, **settings: str) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._settings = settings
        #: Where the functions of handlers without a module are.
        self.module = "app"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url, token=os.environ.get("TEST_TOKEN"), timeout=60, retry_for=20)
        self.start()

    def start(self) -> None:
        # The server refuses variables with its prefix that it does not know.
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        env |= {"TIDEGATE_HTTP_ADDR": f"127.0.0.1:{self.port}", "TIDEGATE_DATA_DIR": str(self.folder)}
        env |= {"RUNTIME_ROOT": str(self.folder), "PORT": "0", "DEBUG_PORT": "0", "GRPC_PORT": "0", **self._settings}
        self.log.write_text("")
        with self.log.open("w") as out:
            self.process = subprocess.Popen([os.environ["TIDEGATE_BINARY"]], env=env, stdout=out, stderr=out)
        until(lambda: "  API " in self.log.read_text(), "the server starts")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        self.kill()

    def create(self, handler: str, params: dict[str, Any] | None = None, **more: Any) -> str:
        """Creates a workflow of one job and returns its id."""
        job = {"name": handler, "handler": self._of(handler), "params": params or {}, **more}
        return str(self.client.request("POST", "/v1/workflows", body={"name": handler, "jobs": [job]})["id"])

    def create_many(self, handler: str, count: int, params: dict[str, Any] | None = None, **more: Any) -> list[str]:
        job = {"name": handler, "handler": self._of(handler), "params": params or {}, **more}
        ids: list[str] = []
        for start in range(0, count, 1000):
            many = [{"name": handler, "jobs": [job]}] * min(1000, count - start)
            items = self.client.request("POST", "/v1/workflows:batch", body={"workflows": many})["items"]
            ids += [item["id"] for item in items]
        return ids

    def _of(self, handler: str) -> str:
        return handler if "." in handler else f"{self.module}.{handler}"

    def job(self, workflow: str, *, wait: float = 20) -> dict[str, Any]:
        """Waits until the workflow is over, and returns its first job."""
        ends = time.monotonic() + wait
        while True:
            pause = round(min(max(ends - time.monotonic(), 0), 30) * 1000)
            shown = self.client.request("GET", f"/v1/workflows/{workflow}?view=full&wait={pause}ms")
            if shown["status"] != "running" or time.monotonic() >= ends:
                return dict(shown["jobs"][0])

    def state(self, workflow: str) -> str:
        return str(self.client.request("GET", f"/v1/workflows/{workflow}?view=jobs")["jobs"][0]["state"])

    def count(self, status: str) -> int:
        return int(self.client.request("GET", f"/v1/workflows:count?status={status}")["total"])

    def wait_all(self, seconds: float) -> None:
        """Waits until no workflow runs."""
        until(lambda: self.count("running") == 0, "all workflows end", seconds, every=0.1)


class Worker:
    """The command in a process of its own."""

    def __init__(
        self, server: Server | str, folder: pathlib.Path, *arguments: str, app: str = "app", **env: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        if not (folder / "app.py").exists():
            (folder / "app.py").write_text(APP)
        self.folder = folder
        self.out = folder / f"worker-{time.monotonic_ns()}.out"
        url = server if isinstance(server, str) else server.url
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.worker", app, "--json", *arguments],
                cwd=folder,
                env={**os.environ, "TIDEGATE_SERVER": url, "PYTHONDONTWRITEBYTECODE": "1", **env},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.out.read_text()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line["event"] == kind]

    def prints(self, text: str, seconds: float = 10) -> None:
        until(lambda: text in self.text(), f"the worker says {text!r}", seconds, note=self.text)

    def ready(self) -> Worker:
        self.prints("at a time")
        return self

    def children(self) -> list[int]:
        found: set[int] = set()
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            # A thread may have ended since it was listed.
            with contextlib.suppress(FileNotFoundError):
                found |= set(map(int, (task / "children").read_text().split()))
        return sorted(found)

    def ordinary(self) -> list[int]:
        """The children without those that run a suspect alone: the table of leases of such a child has one slot. For
        workers with a concurrency of more than 1."""
        return [child for child in self.children() if _size_of_table(child) not in (_ONE_SLOT, None)]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> int:
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _size_of_table(child: int) -> int | None:
    """The size of the table of leases that a process of a worker shows its parent. None: it is none yet, or has
    ended."""
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"tidegate.worker.child" in words:
            # Its arguments are the connection and the table, with an empty word after them.
            return pathlib.Path(f"/proc/{child}/fd/{words[-2].decode()}").stat().st_size
    return None


def _size_of_one_slot() -> int:
    with os.fdopen(LeaseTable.file(1), "rb") as table:
        return os.fstat(table.fileno()).st_size


_ONE_SLOT = _size_of_one_slot()


def until(
    is_so: Callable[[], bool],
    what: str,
    seconds: float = 10,
    *,
    every: float = 0.02,
    note: Callable[[], str] = lambda: "",
) -> None:
    """Waits until it is so, and fails when that takes longer than `seconds`."""
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, f"{what}: not within {seconds} s\n{note()}"
        time.sleep(every)


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
