"""A worker on a Tidegate server: measure.py URL WORKER JOBS TURNS. Prints one JSON object. The server must be new.

WORKER is `bare`, or the number of processes of the worker of the SDK.
bulk: jobs that do nothing, from the first claim to the last report by the server's times.
chain: 40 jobs of 10 ms, one after the other; the overhead is what the chain takes beyond 400 ms.
idle: from the call that creates a job to the beginning of its handler.
"""

import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import time

from tidegate import Client

HERE = pathlib.Path(__file__).parent
BULK = 1000
# Of the jobs that are claimed first, one was the first.
FIRST = 300


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def definition(handler: str) -> dict:
    return {"name": "bench", "jobs": [{"name": "a", "handler": handler}]}


def start(url: str, worker: str) -> subprocess.Popen:
    command = [sys.executable, str(HERE / "bare.py"), url]
    if worker != "bare":
        command = [sys.executable, "-m", "tidegate.worker", "jobs", "--json", "--server", url, "--processes", worker]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL)


def bulk(client: Client, url: str, worker: str, count: int) -> tuple[float, subprocess.Popen]:
    ids = []
    while len(ids) < count:
        many = min(BULK, count - len(ids))
        made = client.request("POST", "/v1/workflows:batch", body={"workflows": [definition("noop")] * many})
        ids += [item["id"] for item in made["items"]]
    process = start(url, worker)
    while client.request("GET", "/v1/workflows:count?status=running")["total"]:
        assert process.poll() is None, "the worker has ended"
        time.sleep(0.1)
    last, cursor = 0.0, ""
    while True:
        page = client.request("GET", f"/v1/workflows?limit=1000&cursor={cursor}")
        last = max([last, *(moment(item["finished_at"]) for item in page["items"])])
        cursor = page["next_cursor"]
        if not cursor:
            break
    first = (client.request("GET", f"/v1/workflows/{id}?view=jobs")["jobs"][0]["started_at"] for id in ids[:FIRST])
    return last - min(map(moment, first)), process


def chain(client: Client, turns: int) -> float:
    jobs = [{"name": f"j{at}", "handler": "ten", "after": [f"j{at - 1}"] if at else []} for at in range(40)]
    overheads = []
    for _ in range(turns + 1):
        id = client.request("POST", "/v1/workflows", body={"name": "chain", "jobs": jobs})["id"]
        done = client.request("GET", f"/v1/workflows/{id}?view=jobs&wait=20s")
        overheads.append((moment(done["finished_at"]) - moment(done["jobs"][0]["started_at"])) * 1000 - 400)
    return statistics.median(overheads[1:])


def idle(client: Client, turns: int) -> list[float]:
    waits = []
    for _ in range(turns + 10):
        time.sleep(0.02)
        at = time.time()
        id = client.request("POST", "/v1/workflows", body=definition("moment"))["id"]
        done = client.request("GET", f"/v1/workflows/{id}?view=full&wait=20s")
        waits.append((done["jobs"][0]["output"] - at) * 1000)
    return sorted(waits[10:])


def main() -> None:
    url, worker, count, turns = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with Client(url, timeout=60) as client:
        seconds, process = bulk(client, url, worker, count)
        try:
            figures = {"seconds": seconds, "chain_ms": chain(client, max(turns // 40, 1))}
            waits = idle(client, turns)
            figures |= {"p50_ms": statistics.median(waits), "p99_ms": waits[int(len(waits) * 0.99)]}
        finally:
            process.terminate()
            process.wait()
    print(json.dumps(figures))


main()
