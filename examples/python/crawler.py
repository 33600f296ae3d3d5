"""A crawler of an API that allows each tenant some calls a second. Its jobs share this limit with an Envoy route.

Start the server with the limits of this folder, then run the crawler:

    RUNTIME_ROOT=examples RUNTIME_SUBDIRECTORY=python tidegate
    python examples/python/crawler.py

The API is a small server in this program. It has 40 pages, and refuses with 429 what is too much.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from tidegate import current, job, limit, workflow


@dataclass
class Page:
    title: str
    links: list[str]


# Every attempt takes one of the 20 units that config/vendor.yaml gives a tenant in a second. Requests through Envoy
# take from the same. While there are none left, jobs of this tenant wait in the queue, and those of others go on.
@job(limits=[limit("vendor", tenant="$.tenant")], retries=3, timeout="30s")
def fetch(tenant: str, url: str) -> Page:
    """Gets one page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"x-tenant": tenant}), timeout=10) as answer:
            title, *links = answer.read().decode().splitlines()
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise
        # The API knows better than our limit. All jobs of this tenant wait now, and it does not count as an attempt.
        current().throttle(f"{error.headers['Retry-After']}s")
    return Page(title, links)


@job
def crawl(tenant: str, start: str) -> list[str]:
    """Finds all pages from the first one on, and returns their titles."""
    titles: list[str] = []
    known = {start: True}
    level = [start]
    while level:
        # Which pages there are is known only now, so the jobs are made now. result() of one that has not ended gives
        # this job back to its queue: no worker waits for it. Then this function runs again from its beginning, and
        # spawn() finds the same jobs as before.
        pages = [current().spawn(fetch, tenant, url) for url in level]
        found = [page.result() for page in pages]
        titles += [page.title for page in found]
        level = [url for url in dict.fromkeys(url for page in found for url in page.links) if url not in known]
        known |= dict.fromkeys(level, True)
        current().progress(100 * len(titles) / len(known), f"{len(titles)} of {len(known)} pages")
    return titles


@workflow
def site(tenant: str, start: str) -> list[str]:
    return crawl(tenant, start)


class Api(BaseHTTPRequestHandler):
    """Page N has links to pages 3N+1, 3N+2 and 3N+3, and one back. 15 calls a second are less than we believe."""

    pages, allowed = 40, 15
    lock = threading.Lock()
    latest: ClassVar[deque[float]] = deque()
    answered = refused = 0

    def do_GET(self) -> None:
        number, now = int(self.path.removeprefix("/")), time.monotonic()
        with Api.lock:
            while Api.latest and Api.latest[0] < now - 1:
                Api.latest.popleft()
            if full := len(Api.latest) >= Api.allowed:
                Api.refused += 1
            else:
                Api.latest.append(now)
                Api.answered += 1
        if full:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.end_headers()
            return
        here = f"http://{self.headers['host']}"
        links = [n for n in (3 * number + 1, 3 * number + 2, 3 * number + 3, (number - 1) // 3) if 0 <= n < Api.pages]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join([f"Page {number}", *(f"{here}/{n}" for n in links)]).encode())

    def log_message(self, format: str, *args: object) -> None:
        """The worker says enough."""


def main(address: str) -> None:
    began = time.monotonic()
    run = site.start("acme", f"{address}/0")
    print(f"workflow {run.id}")
    titles = run.result(timeout=120)
    took = time.monotonic() - began
    print(f"{len(titles)} pages in {took:.1f} s; the API answered {Api.answered} calls and refused {Api.refused}")


if __name__ == "__main__":
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    # The worker is another process, as it would be on another machine. It imports this file and runs its jobs.
    worker = subprocess.Popen([sys.executable, "-m", "tidegate.worker", "crawler"], cwd=Path(__file__).parent)
    try:
        main(f"http://127.0.0.1:{api.server_port}")
    finally:
        worker.terminate()
        worker.wait()
