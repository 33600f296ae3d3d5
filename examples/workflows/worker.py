"""A worker for report.yaml. It needs Python 3 and nothing else.

A worker asks for jobs, runs the handler that each job names, and reports what came out. One call does both: it reports the last
jobs and asks for the next ones.
"""

import json
import os
import urllib.request

SERVER = os.environ.get("TIDEGATE_SERVER", "http://127.0.0.1:7070")


def fetch(job):
    return {"day": job["params"]["day"], "rows": 3}


def mail(job):
    (parent,) = job["inputs"]
    return {"sent": f"{parent['output']['rows']} rows of {parent['output']['day']}"}


HANDLERS = {"fetch": fetch, "mail": mail}
CLAIM = {"queues": ["default"], "worker": "example", "wait": "10s"}


def call(path, body):
    request = urllib.request.Request(
        SERVER + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def run(job):
    """Runs one job and returns its report."""
    try:
        output = HANDLERS[job["handler"]](job)
    except Exception as error:
        return {"lease": job["lease"], "outcome": "failed", "error": {"kind": type(error).__name__, "message": str(error)}}
    return {"lease": job["lease"], "outcome": "succeeded", "output": output}


def main():
    jobs = []
    while True:
        if jobs:
            jobs = call("/v1/jobs/report", {"reports": [run(job) for job in jobs], "claim": CLAIM})["jobs"]
        else:
            jobs = call("/v1/jobs/claim", CLAIM)["jobs"]


if __name__ == "__main__":
    main()
