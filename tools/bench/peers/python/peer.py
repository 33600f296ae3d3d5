"""Another worker of Python jobs on a Redis: peer.py PORT PEER JOBS. Prints one JSON object. The Redis must be empty.

The jobs are there before the workers start; the time is from the beginning of the first job to the end of the last one.
"""

import asyncio
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import board

HERE = pathlib.Path(__file__).parent
PEERS = {
    "celery-threads": ("celery", ["-m", "celery", "-A", "celery_app", "worker", "--pool", "threads", "--concurrency", "16"]),
    "celery-prefork": ("celery", ["-m", "celery", "-A", "celery_app", "worker", "--pool", "prefork", "--concurrency", "4"]),
    "taskiq": ("taskiq", ["-m", "taskiq", "worker", "--workers", "4", "taskiq_app:broker"]),
}
QUIET = {"celery": ["--loglevel", "error", "--without-gossip", "--without-mingle", "--without-heartbeat"], "taskiq": ["--log-level", "ERROR"]}
LONGEST = 120


def celery(count: int) -> None:
    from celery_app import app, noop

    with app.producer_or_acquire() as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


async def taskiq(count: int) -> None:
    from taskiq_app import broker, noop

    await broker.startup()
    for _ in range(count):
        await noop.kiq()
    await broker.shutdown()


def main() -> None:
    port, peer, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    package, command = PEERS[peer]
    with tempfile.NamedTemporaryFile() as file:
        os.environ |= {"BROKER": f"redis://127.0.0.1:{port}/0", "BOARD": file.name}
        board.make(file.name)
        celery(count) if package == "celery" else asyncio.run(taskiq(count))
        with tempfile.TemporaryFile() as log:
            command = [sys.executable, *command, *QUIET[package]]
            process = subprocess.Popen(command, cwd=HERE, stdout=log, stderr=log)
            try:
                ends = time.monotonic() + LONGEST
                while (sums := board.sums(file.name))[2] < count and process.poll() is None and time.monotonic() < ends:
                    time.sleep(0.1)
            finally:
                process.terminate()
                process.wait()
            log.seek(0)
            assert sums[2] == count, f"{sums[2]} of {count} jobs ended: {log.read()[-2000:].decode()}"
    print(json.dumps({"version": importlib.metadata.version(package), "seconds": sums[1] - sums[0]}))


main()
