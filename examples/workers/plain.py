"""A worker in plain Python 3. It runs until SIGTERM, Ctrl-C or `drain`, and finishes its job first.
It extends the lease while a job runs, and reports the end together with the next claim. docs/http-api.md has every message."""

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("TIDEGATE_SERVER", "http://127.0.0.1:7070")
NAME = os.environ.get("WORKER_NAME", f"plain-{os.getpid()}")
STARTED = time.monotonic()
HEADERS = {"content-type": "application/json"}
if os.environ.get("TIDEGATE_TOKEN"):
    HEADERS["authorization"] = "Bearer " + os.environ["TIDEGATE_TOKEN"]


def add(job, stopped):
    return sum(job["params"]["numbers"])


def sleep(job, stopped):
    """Long work checks `stopped` now and then: it is set when the result is not wanted any more."""
    return {"stopped": stopped.wait(job["params"]["seconds"])}


HANDLERS = {"add": add, "sleep": sleep}
CLAIM = {"queues": ["default"], "handlers": sorted(HANDLERS), "lease": "15s", "wait": "10s"}
ending, at_work = threading.Event(), threading.Event()


def who():
    return {"worker": NAME, "uptime": f"{int((time.monotonic() - STARTED) * 1000)}ms"}  # A drain ends with its process.


def call(path, body):
    """Posts what `body` returns until there is an answer: all calls of a worker can be sent again."""
    while True:
        try:
            request = urllib.request.Request(SERVER + path, json.dumps(body()).encode(), HEADERS)
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
            if answer.get("drain"):
                ending.set()
            return answer
        except urllib.error.HTTPError as error:
            if error.code != 503:
                sys.exit(f"{path}: {error.read().decode()}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"{SERVER} does not answer: {error}", file=sys.stderr, flush=True)
        time.sleep(1)


def keep(lease, stopped, done):
    """Extends a lease every second until the job is done or the lease is lost."""
    while not done.wait(1):
        answer = call("/v1/jobs/extend", lambda: {"leases": [lease], "lease": CLAIM["lease"], "stopping": ending.is_set()} | who())
        if answer["leases"][0]["status"] == 409:
            return stopped.set()


def run(job):
    """Runs a job and returns its report."""
    stopped, done = threading.Event(), threading.Event()
    threading.Thread(target=keep, args=(job["lease"], stopped, done), daemon=True).start()
    try:
        return {"lease": job["lease"], "outcome": "succeeded", "output": HANDLERS[job["handler"]](job, stopped)}
    except Exception as error:
        return {"lease": job["lease"], "outcome": "failed", "error": {"kind": type(error).__name__, "message": str(error)}}
    finally:
        done.set()


def end(*_):
    ending.set()
    if not at_work.is_set():
        sys.exit()  # Jobs of a claim that is not answered go back to their queue.


def main():
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    reports = []
    while reports or not ending.is_set():
        answer = call("/v1/jobs/report", lambda: {"reports": reports} | ({} if ending.is_set() else {"claim": CLAIM | who()}))
        at_work.set()
        # 503: the store did not take this report. Any other status is the end of it.
        again = [report for report, item in zip(reports, answer["reports"]) if item["status"] == 503]
        reports = again + [run(job) for job in answer["jobs"]]
        if again:
            time.sleep(1)
        if not reports:
            at_work.clear()


main()
