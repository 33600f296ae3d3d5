"""A worker for report.yaml. It needs Python 3 and nothing else. It runs until Ctrl-C.

A worker asks for jobs, runs the handler that each job names, and reports what came out. One call does both: it reports the last
jobs and asks for the next ones. A report that the store could not take, it sends again.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("TIDEGATE_SERVER", "http://127.0.0.1:7070")
if "://" not in SERVER:
    SERVER = "http://" + SERVER
HEADERS = {"content-type": "application/json"}
if os.environ.get("TIDEGATE_TOKEN"):
    HEADERS["authorization"] = "Bearer " + os.environ["TIDEGATE_TOKEN"]


def fetch(job):
    return {"day": job["params"]["day"], "rows": 3}


def mail(job):
    (parent,) = job["inputs"]
    return {"sent": f"{parent['output']['rows']} rows of {parent['output']['day']}"}


HANDLERS = {"fetch": fetch, "mail": mail}
CLAIM = {"queues": ["default"], "handlers": sorted(HANDLERS), "worker": "example", "wait": "10s"}


def call(path, body):
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), HEADERS)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # A server that is about to stop answers 503. Other refusals stay what they are.
            if error.code != 503:
                sys.exit(f"worker: {path}: {error.read().decode()}")
            reason = error.reason
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error
        print(f"worker: {SERVER} does not answer ({reason}); trying again", file=sys.stderr, flush=True)
        time.sleep(1)


def run(job):
    """Runs one job and returns its report."""
    try:
        output = HANDLERS[job["handler"]](job)
    except Exception as error:
        return {"lease": job["lease"], "outcome": "failed", "error": {"kind": type(error).__name__, "message": str(error)}}
    return {"lease": job["lease"], "outcome": "succeeded", "output": output}


def main():
    reports = []
    while True:
        if reports:
            answer = call("/v1/jobs/report", {"reports": reports, "claim": CLAIM})
            again = refused(reports, answer["reports"])
        else:
            answer, again = call("/v1/jobs/claim", CLAIM), []
        reports = again + [run(job) for job in answer["jobs"]]


def refused(reports, items):
    """The reports to send again. Each has a status of its own; 503 says that the store did not take this one."""
    again = [report for report, item in zip(reports, items) if item["status"] == 503]
    if again:
        print(f"worker: {len(again)} reports were not taken; sending them again", file=sys.stderr, flush=True)
        time.sleep(1)
    return again


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
