"""Type checkers: the package and the examples are clean, and a wrong call of a job is found before it runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SDK = Path(__file__).parents[1]
EXAMPLES = SDK.parents[1] / "examples/python"

PROGRAM = """
from tidegate import Client, concurrency, current, job, limit, limited, testing, workflow


@job(retries=3, limits=[limit("vendor", tenant="$.day"), concurrency(3)])
def fetch(day: str, pages: int = 1) -> list[int]:
    return [pages]


@job
async def send(rows: list[int]) -> str:
    return str(rows)


@workflow(tags=["a"])
def report(day: str) -> str:
    return send.step(fetch(day))


@workflow
async def later(day: str) -> str:
    return await send(fetch.options(queue="web")(day))


@job
@limited("vendor", tenant="$.tenant")
def charge(tenant: str) -> str:
    return tenant


def use() -> None:
    paid: str = charge.enqueue("a").result()
    tested: str = testing.Server(Client()).run(report, "monday").result()
    rows: list[int] = fetch("monday")
    ended: str = report.start("monday").result()
    again: str = later.start(day="monday").result(timeout=5)
    alone: list[int] = fetch.enqueue("monday", pages=2).result()
    sent: str = send.enqueue([1]).result()
    child: str = current().spawn(report, "monday").result()
    ended_jobs: int = sum(found.done for found in report.start("monday").progress())
    status: str = report.start("monday").watch()
    wrapped: list[str] = list(map(current().wrap(charge.function), ["a"]))
    shown: str = Client().show_workflow("01M7Z85C8H08RJZ5Q5JGPKMY04")["status"]
    print(ended_jobs, status, wrapped, paid, tested, rows, ended, again, alone, sent, child, shown)
"""

WRONG = [
    "fetch.enqueue(3)",
    "fetch.aenqueue(3)",
    "fetch.enqueue_with(Client(), 3)",
    "fetch.options(queue='web').enqueue(3)",
    "fetch.options(queue='web')(3)",
    "fetch.step(3)",
    "fetch.enqueue()",
    "report.astart(1)",
    "report.options(tags=['a']).start(1)",
    "report.start(days='monday')",
    "later.start(1)",
    "send.step('text')",
    "current().spawn(fetch, 7)",
    "current().throttle(None)",
    "x: str = fetch.enqueue('monday').result()",
    "x: int = send.enqueue([1]).result()",
    "x: str = testing.Server(Client()).run(fetch, 'monday').result()",
    "testing.Server(Client()).run(report, 3)",
    "charge(3)",
    "x: int = charge('a')",
    "job(retries='3')(charge)",
    "job(backoff=[1])(charge)",
    "fetch.options(retries='3')",
    "fetch.options(rate=3)",
    "fetch.options(limits=[limit(1)])",
    "fetch.options(limits=[3])",
    "limit('vendor', tenant=1.5)",
    "concurrency('3')",
    "concurrency(3, of='worker')",
    "report.options(on_failure='stop')",
    "report.options(retries=3)",
    "workflow(tag=['a'])",
    "limited('vendor', wait=None)",
    "Client().create_workflow({'name': 'w'})",
    "Client().show_workflow(17)",
    "fetch(3)",
    "fetch()",
    "fetch.enqueue(day=3)",
    "fetch.enqueue('monday', page=1)",
    "report.start(1)",
    "send.enqueue('text')",
    "x: int = report.start('monday').result()",
    "current().spawn(report, 7)",
    "job(retry=3)",
    "fetch.delay('monday')",
    "fetch.apply_async('monday')",
    "x: str = next(report.start('monday').progress()).done",
    "current().wrap(fetch)(3)",
    "testing.server(limits=3)",
    "fetch.options(rule='sometimes')",
]


def run(*command: str, folder: Path) -> tuple[int, str]:
    # Packages that are installed with it: pyright does not look for it by itself.
    more = ["--pythonpath", sys.executable] if command[0] == "pyright" else []
    done = subprocess.run(
        [sys.executable, "-m", command[0], *more, *command[1:]], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_the_package_is_clean(checker: str) -> None:
    code, output = run(checker, folder=SDK)
    assert code == 0, output


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_the_examples_are_clean(checker: str, tmp_path: Path) -> None:
    examples = sorted(str(path) for path in EXAMPLES.glob("*.py"))
    assert examples
    for example in examples:
        shutil.copy(example, tmp_path)
    code, output = run(*command(checker, tmp_path), *(Path(example).name for example in examples), folder=tmp_path)
    assert code == 0, output


def command(checker: str, folder: Path) -> list[str]:
    if checker == "mypy":
        return ["mypy", "--strict", "--python-version", "3.10", "--cache-dir", str(folder / "cache")]
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "pythonVersion": "3.10"}')
    return ["pyright"]


@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_wrong_calls_are_found(checker: str, tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(PROGRAM)
    code, output = run(*command(checker, tmp_path), "right.py", folder=tmp_path)
    assert code == 0, output
    wrong = PROGRAM + "".join(f"\n\ndef wrong_{place}() -> None:\n    {line}\n" for place, line in enumerate(WRONG))
    (tmp_path / "wrong.py").write_text(wrong)
    _, output = run(*command(checker, tmp_path), "wrong.py", folder=tmp_path)
    for line in WRONG:
        number = wrong.splitlines().index(f"    {line}") + 1
        assert f"wrong.py:{number}:" in output, f"{checker} accepts {line}\n{output}"
