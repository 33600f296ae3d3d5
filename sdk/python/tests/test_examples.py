"""The programs of examples/python and of the guides, against a real server and a real worker."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate

if TYPE_CHECKING:
    from conftest import Server

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "python"
GUIDES = ("from-gush.md", "from-celery.md", "from-bullmq.md")
ENVOY = ROOT / ".venv" / "envoy"
NODE_MODULES = ROOT / "tools" / "bench" / "peers" / "node_modules"

# The output of the programs of the guides, for each server that they are written for.
PRINTED = "to ada: Lisbon\n"
# A program takes some seconds. A machine that is busy with other tests may need much longer.
LONG = 120


@pytest.fixture
def address(make_server: Callable[..., Server]) -> str:
    """A server with the limits of the examples."""
    return make_server(RUNTIME_ROOT=str(ROOT / "examples"), RUNTIME_SUBDIRECTORY="python").address


def environment(address: str, folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    return {**kept, "TIDEGATE_SERVER": address, "TMPDIR": str(folder)}


def printed(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """The standard output of a program, which must succeed."""
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def example(name: str, address: str, folder: Path, *arguments: str) -> str:
    return printed([sys.executable, str(EXAMPLES / name), *arguments], environment(address, folder), ROOT)


@contextmanager
def running(command: list[str], environment: dict[str, str], folder: Path) -> Generator[None]:
    """A program that runs until the block ends."""
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            yield
        except BaseException:
            print((folder / "worker.log").read_text())  # noqa: T201
            raise
        finally:
            process.terminate()
            try:
                process.wait(LONG)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def programs(page: str, kind: str) -> dict[str, str]:
    """The programs of a page by the names of their files: blocks after a comment, <!-- test: tidegate report.py -->."""
    text = (ROOT / "docs" / page).read_text()
    return dict(re.findall(rf"<!-- test: {kind} (\S+) -->\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def written(page: str, kind: str, folder: Path, **changes: str) -> list[str]:
    """Writes the programs of a page into a folder, with other addresses, and returns their names."""
    found = programs(page, kind)
    assert found, f"docs/{page} has no program for {kind}"
    for name, text in found.items():
        for old, new in changes.items():
            text = text.replace(ADDRESSES[old], new)
        (folder / name).write_text(text)
    return list(found)


#: Where the programs of the guides expect Redis.
ADDRESSES = {"url": "redis://localhost:6379", "options": "host: 'localhost', port: 6379"}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis."""
    if (binary := shutil.which("redis-server")) is None:
        pytest.fail("there is no redis-server: run scripts/deps test")
    (port,) = free_ports(1)
    folder = tmp_path / "redis"
    folder.mkdir()
    with running([binary, "--port", str(port), "--save", "", "--dir", str(folder)], dict(os.environ), folder):
        yield port


def test_limits() -> None:
    if (binary := os.environ.get("TIDEGATE_BINARY")) is None:
        pytest.fail("set TIDEGATE_BINARY to the path of the server's program")
    output = printed([binary, "check", str(EXAMPLES / "config")], dict(os.environ), ROOT)
    assert output.strip() == "ok: 2 files, 2 domains, 2 limits"


def test_thumbnails(address: str, tmp_path: Path) -> None:
    output = example("thumbnails.py", address, tmp_path)
    sheet = re.search(r"sheet of 768 x 48 pixels: (.+)", output)
    assert sheet, output
    assert Path(sheet[1]).read_bytes().startswith(b"P6\n768 48\n255\n")
    assert len(list(Path(sheet[1]).parent.glob("small-*.ppm"))) == 12


def test_crawler(address: str, tmp_path: Path) -> None:
    output = example("crawler.py", address, tmp_path)
    # Each page was answered once, however often the crawl went back to its queue and the API refused.
    assert re.search(r"40 pages in [0-9.]+ s; the API answered 40 calls and refused [0-9]+", output), output


def test_crawler_shares_its_limit_with_a_route_of_envoy(make_server: Callable[..., Server], tmp_path: Path) -> None:
    ports = free_ports(4)
    grpc, front = ports[:2]
    limits = {"RUNTIME_ROOT": str(ROOT / "examples"), "RUNTIME_SUBDIRECTORY": "python"}
    client = tidegate.Client(make_server(**limits, GRPC_PORT=str(grpc)).address)
    # The command of the page makes the configuration; only the ports are others.
    command = re.search(r"^sed .*? > /tmp/vendor.yaml$", (EXAMPLES / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert command
    text = printed(["sh", "-c", command[0].removesuffix(" > /tmp/vendor.yaml")], dict(os.environ), ROOT)
    for old, new in zip((8081, 10000, 10001, 9901), ports, strict=True):
        text = text.replace(f"port_value: {old} ", f"port_value: {new} ")
    (tmp_path / "vendor.yaml").write_text(text)

    def status_of(tenant: str) -> int:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{front}", headers={"x-tenant": tenant})
            return int(urllib.request.urlopen(request, timeout=5).status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def handed_out() -> int:
        claim: tidegate.api.Claim = {"queues": ["default"], "worker": "test", "wait": "100ms", "limit": 10}
        return len(client.claim_jobs(claim)["jobs"])

    crawler = importlib.util.spec_from_file_location("crawler", EXAMPLES / "crawler.py")
    assert crawler and crawler.loader
    module = importlib.util.module_from_spec(crawler)
    sys.modules["crawler"] = module
    crawler.loader.exec_module(module)
    entries = [["tenant", "acme"]]
    with running([str(ENVOY), "--concurrency", "1", "--disable-hot-restart", "-c", "vendor.yaml"], {}, tmp_path):
        until(lambda: status_of("bell") == 200)
        # Nothing is left of the limit of one tenant: neither requests nor jobs of it pass, and those of another do.
        client.set_override({"domain": "vendor", "entries": entries, "scale": 0})
        until(lambda: status_of("acme") == 429)
        module.fetch.enqueue_with(client, "acme", "http://127.0.0.1:1")
        assert handed_out() == 0
        module.fetch.enqueue_with(client, "bell", "http://127.0.0.1:1")
        assert handed_out() == 1
        client.remove_override(domain="vendor", entries=json.dumps(entries))
        until(lambda: status_of("acme") == 200)
        until(lambda: handed_out() == 1)


def free_ports(number: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            "yes",
            [
                "approve  succeeded  ada",
                "ship     succeeded  parcel-17",
                "refund   skipped",
                "the workflow has succeeded",
            ],
        ),
        (
            "no",
            [
                "approve  failed      ['ada said no']",
                "ship     waiting",
                "refund   succeeded  receipt-17 is paid back",
                "the workflow has failed",
            ],
        ),
    ],
)
def test_orders(address: str, tmp_path: Path, answer: str, expected: list[str]) -> None:
    output = example("orders.py", address, tmp_path, "--answer", answer)
    wanted = ["charge   succeeded  receipt-17 ['the bank does not answer']", *expected]
    # The worker writes there, too.
    assert [line for line in output.splitlines() if line in wanted] == wanted, output


def test_an_unclear_answer_repeats_the_question(address: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "orders.py")]
    done = subprocess.run(
        command,
        env=environment(address, tmp_path),
        cwd=ROOT,
        input="maybe\n\nYes\n",
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.stdout.count("Please answer yes or no: ") == 2, done.stdout + done.stderr
    assert "the workflow has succeeded" in done.stdout


def test_the_worker_of_the_workflow_leaves_jobs_of_others_alone(address: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/workflows/worker.py")]
    with tidegate.Client(address) as client, running(command, environment(address, tmp_path), tmp_path):
        other = client.create_workflow({"name": "other", "jobs": [{"handler": "hello"}]})["id"]
        own: Any = {"name": "own", "jobs": [{"handler": "fetch", "params": {"day": "monday"}}]}
        run = tidegate.Run[Any](client.create_workflow(own)["id"], client)
        assert run.wait(timeout=LONG) == "succeeded"
        # It was first in the same queue.
        assert client.list_jobs(other)["items"][0]["state"] == "ready"


def test_agent(address: str, tmp_path: Path) -> None:
    output = example("agent.py", address, tmp_path)
    lines = output.splitlines()
    # Its log says once what it did, although it ran several times.
    assert [line for line in lines if "pencils" in line or "steps" in line] == [
        "It is as tall as 4125 pencils of 8 cm.",
        "3 steps, 180 tokens",
    ], output


@pytest.mark.parametrize("page", GUIDES)
def test_programs_of_guides(page: str, address: str, tmp_path: Path) -> None:
    names = written(page, "tidegate", tmp_path)
    settings = environment(address, tmp_path)
    with running([sys.executable, "-m", "tidegate.worker", "report"], settings, tmp_path):
        for name in names:
            assert printed([sys.executable, name], settings, tmp_path) == PRINTED


def test_celery(tmp_path: Path, redis: int) -> None:
    (name,) = written("from-celery.md", "celery", tmp_path, url=f"redis://127.0.0.1:{redis}")
    worker = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "threads", "--concurrency", "4"]
    with running(worker, dict(os.environ), tmp_path):
        assert printed([sys.executable, name], dict(os.environ), tmp_path) == PRINTED


def test_bullmq(tmp_path: Path, redis: int) -> None:
    (name,) = written("from-bullmq.md", "bullmq", tmp_path, options=f"host: '127.0.0.1', port: {redis}")
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    assert printed(["node", name], dict(os.environ), tmp_path) == PRINTED


def test_guide_knows_celery() -> None:
    """The guide has all that the installed Celery has for operators and programs."""
    control, signals, states = (_content(f"celery.{name}") for name in ("app.control", "signals", "states"))
    names = {name for kind in ("Control", "Inspect") for name, one in _inside(control[kind]).items() if callable(one)}
    names |= {name for name, one in signals.items() if type(one).__name__ == "Signal"} | states["ALL_STATES"]
    # The names of two others, and what the package uses itself.
    assert_known("from-celery.md", names - {"Mailbox", "registered_tasks"})


def _content(module: str) -> dict[str, Any]:
    return vars(importlib.import_module(module))


def _inside(kind: type) -> dict[str, Any]:
    return dict(vars(kind))


def test_guide_knows_bullmq() -> None:
    """Each option and each event of the installed BullMQ is in the guide."""
    types = NODE_MODULES / "bullmq" / "dist" / "esm"
    names: set[str] = set()
    for file in OPTIONS:
        names |= set(re.findall(r"^ {4,8}([a-zA-Z]+)\??: ", (types / f"{file}.d.ts").read_text(), re.MULTILINE))
    names |= set(
        re.findall(r"^    '?([a-z-]+)'?: \(", (types / "classes" / "queue-events.d.ts").read_text(), re.MULTILINE)
    )
    # Marked as internal, or as not in use anymore.
    assert_known("from-bullmq.md", names - {"prevMillis", "repeatJobKey", "blockingConnection"})


OPTIONS = (
    "interfaces/base-job-options",
    "interfaces/flow-job",
    "interfaces/queue-options",
    "interfaces/repeat-options",
    "interfaces/sandboxed-options",
    "interfaces/worker-options",
    "types/deduplication-options",
    "types/job-options",
)


def assert_known(page: str, names: set[str]) -> None:
    """Each of the names is a word of the page."""
    words = set(re.findall(r"[A-Za-z_]+(?:-[a-z]+)*", (ROOT / "docs" / page).read_text()))
    unknown = sorted(name for name in names if not name.startswith("_") and name not in words)
    assert not unknown, f"docs/{page} has no row for {unknown}"


@pytest.mark.parametrize("page", GUIDES)
def test_tables_of_guides(page: str) -> None:
    """Each concept has an answer, also where it is that there is none."""
    rows = [line for line in (ROOT / "docs" / page).read_text().splitlines() if line.startswith("|")]
    assert len(rows) > 50
    for row in rows:
        # A bar in code is written as \|.
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 2 and all(cells), row
