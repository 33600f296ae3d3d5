"""The same jobs without the SDK: a script of one thread on the HTTP API. URL of the server as argument."""

import http.client
import json
import sys
import time
from urllib.parse import urlsplit


def ten() -> None:
    time.sleep(0.01)


HANDLERS = {"noop": lambda: None, "ten": ten, "moment": time.time}
CLAIM = {"queues": ["default"], "worker": "bare", "limit": 100, "wait": "20s"}

connection = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc)
connection.connect()


def post(path: str, body: object) -> dict:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return json.loads(text)


jobs = []
while True:
    reports = []
    for job in jobs:
        output = HANDLERS[job["handler"]]()
        reports.append({"lease": job["lease"], "outcome": "succeeded", "output": output})
    if reports:
        jobs = post("/v1/jobs/report", {"reports": reports, "claim": {**CLAIM, "wait": "0s"}})["jobs"]
    if not jobs:
        jobs = post("/v1/jobs/claim", CLAIM)["jobs"]
