"""Measures the worker: `python tests/bench_worker.py`, with the server's program in TIDEGATE_BINARY.

bulk: no-op jobs a second, with 1 and with 4 processes, from the first claim to the last report by the server's times.
chain: 40 jobs of 10 ms, one after the other; the overhead is what the chain takes beyond 400 ms.
idle: from the call that creates a job to the beginning of its handler, on an idle system.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator

from tidegate import Client

_APP = """
import time
from tidegate import job, current

@job
def noop() -> None:
    return None

@job
async def anoop() -> None:
    return None

@job
def ten() -> None:
    time.sleep(0.01)

@job
def moment() -> float:
    return time.time()
"""


@contextlib.contextmanager
def server(folder: pathlib.Path) -> Generator[str, None, None]:
    log = folder / "server.log"
    more = {"TIDEGATE_HTTP_ADDR": "127.0.0.1:0", "TIDEGATE_DATA_DIR": str(folder), "RUNTIME_ROOT": str(folder)}
    ports = {"PORT": "0", "DEBUG_PORT": "0", "GRPC_PORT": "0"}
    with log.open("w") as out:
        # The server refuses variables with its prefix that it does not know.
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        env |= {**more, **ports}
        process = subprocess.Popen([os.environ["TIDEGATE_BINARY"]], env=env, stdout=out, stderr=out)
    try:
        ends = time.monotonic() + 10
        while "API" not in log.read_text():
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.02)
        yield "http://" + log.read_text().split("API")[1].split()[0]
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def worker(url: str, folder: pathlib.Path, *arguments: str) -> Generator[subprocess.Popen[str], None, None]:
    (folder / "bench_app.py").write_text(_APP)
    command = [sys.executable, "-m", "tidegate.worker", "bench_app", "--json", *arguments]
    with (folder / "worker.log").open("w") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "TIDEGATE_SERVER": url}, stdout=out, text=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def bulk(count: int, *arguments: str, handler: str = "noop") -> tuple[float, float]:
    """Returns the seconds from the first claim to the last report, and jobs a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with server(folder) as url, Client(url, timeout=60) as client:
            ids: list[str] = []
            for _ in range(0, count, 1000):
                body = {"workflows": [{"name": "bench", "jobs": [{"name": "a", "handler": handler}]}] * 1000}
                answer = json.loads(json.dumps(client.request("POST", "/v1/workflows:batch", body=body)))
                ids += [item["id"] for item in answer["items"]]
            with worker(url, folder, *arguments):
                while client.request("GET", "/v1/workflows:count?status=running")["total"]:
                    time.sleep(0.25)
                began: list[float] = []
                ended: list[float] = []
                cursor = ""
                while True:
                    page = client.request("GET", f"/v1/workflows?limit=1000&cursor={cursor}")
                    ended += [_time(item["finished_at"]) for item in page["items"]]
                    cursor = page["next_cursor"]
                    if not cursor:
                        break
                for one in ids[:300]:
                    began.append(
                        _time(client.request("GET", f"/v1/workflows/{one}?view=jobs")["jobs"][0]["started_at"])
                    )
    seconds = max(ended) - min(began)
    return seconds, count / seconds


def chain(turns: int) -> list[float]:
    """Returns the overhead of each turn in milliseconds."""
    jobs = [{"name": f"j{i}", "handler": "ten", **({"after": f"j{i - 1}"} if i else {})} for i in range(40)]
    overheads: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with server(folder) as url, Client(url, timeout=60) as client, worker(url, folder):
            for _ in range(turns + 1):
                id = client.request("POST", "/v1/workflows", body={"name": "chain", "jobs": jobs})["id"]
                done = client.request("GET", f"/v1/workflows/{id}?view=jobs&wait=20s")
                took = _time(done["finished_at"]) - _time(done["jobs"][0]["started_at"])
                overheads.append(took * 1000 - 400)
    return overheads[1:]


def idle(turns: int, handler: str = "moment") -> list[float]:
    """Returns the milliseconds from the call to the handler."""
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with server(folder) as url, Client(url, timeout=60) as client, worker(url, folder):
            for _ in range(turns + 20):
                time.sleep(0.02)
                at = time.time()
                body = {"name": "one", "jobs": [{"name": "a", "handler": handler}]}
                id = client.request("POST", "/v1/workflows", body=body)["id"]
                done = client.request("GET", f"/v1/workflows/{id}?view=full&wait=20s")
                waits.append((done["jobs"][0]["output"] - at) * 1000)
    return waits[20:]


def _time(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    which = sys.argv[1:] or ["bulk", "chain", "idle"]
    if "bulk" in which:
        for arguments in (["--processes", "1"], ["--processes", "4"]):
            turns = [bulk(20_000, *arguments) for _ in range(3)]
            told = ", ".join(f"{seconds:.2f} s ({rate:,.0f} a second)" for seconds, rate in turns)
            say(f"bulk, 20,000 jobs, {' '.join(arguments)}: {told}")
    if "abulk" in which:
        say("async bulk, 20,000 jobs, 1 process: {:.2f} s ({:,.0f} a second)".format(*bulk(20_000, handler="anoop")))
    if "chain" in which:
        overheads = chain(5)
        say(f"chain of 40 x 10 ms, overhead: {', '.join(f'{one:.1f}' for one in overheads)} ms")
    if "idle" in which:
        waits = sorted(idle(500))
        high = waits[int(len(waits) * 0.99)]
        say(f"create to handler, idle: p50 {statistics.median(waits):.2f} ms, p99 {high:.2f} ms")


main()
