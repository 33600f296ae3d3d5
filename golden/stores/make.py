#!/usr/bin/env python3
"""Fills a store of workflows through the API of a server, and writes what the store holds and what the server says of it.

    make.py redis|sqlite BINARY FOLDER NUMBER

BINARY is a server. NUMBER is the format that it writes: the files FOLDER/NUMBER-*. Needs redis-server and the ports below.
"""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

KIND, BINARY, FOLDER, NUMBER = sys.argv[1:5]
REDIS, HTTP, GRPC, DEBUG, API = 16399, 18080, 18081, 16070, 17070
BASE = f"http://127.0.0.1:{API}"


def start(folder):
    """Starts the server, and Redis if the store is there."""
    os.makedirs(f"{folder}/config")
    env = {
        "PATH": os.environ["PATH"], "PORT": str(HTTP), "GRPC_PORT": str(GRPC), "DEBUG_PORT": str(DEBUG),
        "TIDEGATE_HTTP_ADDR": f"127.0.0.1:{API}", "RUNTIME_ROOT": folder, "TIDEGATE_DATA_DIR": f"{folder}/data",
        "TIDEGATE_PARTITIONS": "4",
    }
    redis = None
    if KIND == "redis":
        redis = subprocess.Popen(["redis-server", "--port", str(REDIS), "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
        env |= {"REDIS_URL": f"127.0.0.1:{REDIS}", "REDIS_SOCKET_TYPE": "tcp"}
        time.sleep(0.5)
    server = subprocess.Popen([BINARY], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            urllib.request.urlopen(f"{BASE}/readyz")
            break
        except OSError:
            time.sleep(0.1)
    return server, redis


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE}/v1{path}", data=data, headers={"content-type": "application/json"})
    try:
        return json.loads(urllib.request.urlopen(request).read() or b"null")
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from None


def job(name, after=None, **more):
    about = {"name": name, "handler": f"do.{name}", **more}
    return about | {"after": after} if after else about


def create(name, jobs, **more):
    return call("/workflows", {"name": name, "jobs": jobs, **more})["id"]


def claim(queue, limit=1):
    return call("/jobs/claim", {"queues": [queue], "worker": "worker one", "limit": limit, "lease": "1h"})["jobs"]


def report(lease, outcome, **more):
    call("/jobs/report", {"reports": [{"lease": lease, "outcome": outcome, **more}]})


def fill():
    """Workflows in every state. Returns their ids by name, and two leases."""
    ids, leases = {}, {}
    ids["pending"] = create(
        "pending",
        [job("a", params={"u": "\u00e9", "n": 1.10}, queue="p", priority=9, retries=3, timeout="5s", wait="2s"), job("b", "a", rule="all_done")],
        start="manual", globals={"g": [1, 2]}, tags=["x", "y"], retention="forever", on_failure="fail_fast", idempotency_key="key one",
    )
    ids["running"] = create(
        "running",
        [job("a", queue="r"), job("b", "a", queue="r", params={"k": "v"}), job("c", "b", queue="r"), job("late", queue="r", wait="100d"),
         job("bad", queue="r2", retries=1, backoff="100d"), job("after bad", "bad", queue="r2")],
        globals={"g": 1},
    )
    report(claim("r")[0]["lease"], "succeeded", output={"big": "o" * 300})
    leases["b"] = claim("r")[0]["lease"]
    report(claim("r2")[0]["lease"], "failed", error={"kind": "Oops", "message": "went wrong", "trace": "line 1\nline 2"})
    ids["ready"] = create("ready", [job("low", queue="q"), job("high", queue="q", priority=255), job("middle", queue="q", priority=7), job("other", queue="q other")])
    many = [f"j{number}" for number in range(300)]
    ids["many"] = create("many", [job(name, queue="many") for name in many] + [job("join", many, queue="many")])
    for claimed in claim("many", 150):
        report(claimed["lease"], "succeeded", output=1)
    ids["paused"] = create("paused", [job("a", queue="s"), job("b", "a", queue="s")])
    call(f"/workflows/{ids['paused']}:pause", {})
    ids["cancelled"] = create("cancelled", [job("a", queue="s"), job("b", "a", queue="s")])
    call(f"/workflows/{ids['cancelled']}:cancel", {})
    ids["failed"] = create("failed", [job("a", queue="f"), job("b", "a", queue="f"), job("alarm", "a", queue="f2", rule="any_failed")], tags=["x"])
    report(claim("f")[0]["lease"], "failed", error={"kind": "E", "message": "m"})
    report(claim("f2")[0]["lease"], "succeeded")
    ids["succeeded"] = create("succeeded", [job("a", queue="t"), job("b", "a", queue="t")], retention="365d", idempotency_key="key two")
    leases["done"] = claim("t")[0]["lease"]
    report(leases["done"], "succeeded", output=[1, 2.50])
    report(claim("t")[0]["lease"], "succeeded", output="end")
    ids["skipped"] = create("skipped", [job("a", queue="u"), job("b", "a", queue="u")])
    call(f"/workflows/{ids['skipped']}/jobs/a:skip", {})
    tags = [f"t{number}" + "y" * 150 for number in range(16)]
    ids["long"] = create("n" * 200, [job("z" * 190, queue="l" * 200)], tags=tags)
    call("/queues/q%20other:pause", {})
    rate = {"domain": "vendor", "entries": [["tenant", "$.tenant"]], "hits": 2}
    own = {"concurrency": 3, "of": "workflow", "entries": []}
    one = {"concurrency": 1, "of": "queue", "entries": [["kind", "$.kind"]]}
    ids["limited"] = create(
        "limited",
        [job("a", queue="lim", limits=[rate, own]), job("b", queue="lim", params={"kind": "x"}, limits=[one]), job("c", "a", queue="lim", limits=[one, rate], params={"kind": "x"})],
        globals={"tenant": "acme"},
    )
    leases["limited"] = next(claimed for claimed in claim("lim", 9) if claimed["job"] == "b")["lease"]
    return ids, leases


ALWAYS = ("name", "state", "attempt")
IF_SET = ("lost", "worker", "output", "blocked", "priority", "queue", "rule", "timeout_ms", "retries", "wait_ms", "params")


def told(ids, leases):
    """What the server says of the workflows."""
    workflows = {}
    for name, id in ids.items():
        seen = call(f"/workflows/{id}?view=full")
        jobs = []
        for job in seen["jobs_list"] if "jobs_list" in seen else seen["jobs"]:
            short = {field: job[field] for field in ALWAYS} | {field: job[field] for field in IF_SET if job.get(field)}
            if job.get("errors"):
                short["errors"] = [{field: error[field] for field in ("kind", "message", "trace")} for error in job["errors"]]
            jobs.append(short)
        workflows[name] = {"id": id, "status": seen["status"], "jobs": jobs}
    text = json.dumps({"leases": leases, "workflows": workflows}, ensure_ascii=False)
    return text.replace('}, {"name"', '},\n    {"name"').replace('"workflows": {', '"workflows": {\n').replace(']}, "', ']},\n "')


class Redis:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", REDIS))
        self.replies = self.socket.makefile("rb")

    def __call__(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self.reply()

    def reply(self):
        line = self.replies.readline()[:-2]
        kind, value = line[:1], line[1:]
        if kind == b"*":
            return [self.reply() for _ in range(int(value))]
        if kind == b"$":
            return self.replies.read(int(value) + 2)[:-2]
        return value


def quoted(word):
    plain = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'\\"' else f"\\x{byte:02x}" for byte in word)
    return f'"{plain}"'


def dump_redis():
    """Commands that make every key, as a person would type them."""
    redis, lines = Redis(), []
    for key in sorted(redis("KEYS", "*")):
        kind = redis("TYPE", key)
        if kind == b"hash":
            found = redis("HGETALL", key)
            words = ["HSET", key, *[word for pair in sorted(zip(found[::2], found[1::2])) for word in pair]]
        elif kind == b"zset":
            found = redis("ZRANGE", key, 0, -1, "WITHSCORES")
            words = ["ZADD", key, *[word for row, score in zip(found[::2], found[1::2]) for word in (score, row)]]
        else:
            words = ["SET", key, redis("GET", key)]
        lines.append(" ".join([words[0], *map(quoted, words[1:])]))
    return "\n".join(lines) + "\n"


def dump_sqlite(folder):
    file = sqlite3.connect(f"{folder}/data/workflows.db")
    pragmas = [f"PRAGMA {name} = {file.execute(f'PRAGMA {name}').fetchone()[0]};" for name in ("application_id", "user_version")]
    return "\n".join([*file.iterdump(), *pragmas]) + "\n"


def main():
    with tempfile.TemporaryDirectory() as folder:
        server, redis = start(folder)
        try:
            seen = told(*fill())
            # Changes that are on their way.
            time.sleep(1)
            dump = dump_redis() if redis else None
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
            if redis:
                redis.terminate()
                redis.wait()
        name, text = ("redis.txt", dump) if redis else ("sqlite.sql", dump_sqlite(folder))
    for name, text in ((name, text), (f"{KIND}.json", seen + "\n")):
        with open(f"{FOLDER}/{NUMBER}-{name}", "w", encoding="utf-8") as file:
            file.write(text)


main()
