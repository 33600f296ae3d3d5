"""What README.md and docs/python.md say about Python is done here as it is printed, from the
installation to a finished graph."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def blocks(document: Path) -> list[tuple[str, str, str]]:
    """The code of a page: what the comment before a block says, its language, its text."""
    found = re.findall(r"(?:<!-- ([^>]*) -->\n)?```(sh|python)\n(.*?)```", document.read_text(), re.DOTALL)
    return [(note or "", language, text) for note, language, text in found]


def write(folder: Path, note: str, text: str) -> None:
    name = note.removeprefix("file ").split(",")[0]
    path = folder / name
    path.write_text((path.read_text() + "\n\n" if "appended" in note else "") + text)


@pytest.fixture
def readme(tmp_path: Path) -> tuple[Path, list[tuple[str, str, str]]]:
    page = ROOT / "README.md"
    part = page.read_text().split("## Jobs in Python")[1].split("\n## ")[0]
    (tmp_path / "part.md").write_text(part)
    # The commands are for the root of the repository.
    (tmp_path / "sdk").symlink_to(ROOT / "sdk")
    return tmp_path, blocks(tmp_path / "part.md")


def test_the_quick_start_from_installation_to_a_finished_graph(
    readme: tuple[Path, list[tuple[str, str, str]]], make_server: Callable[..., Any]
) -> None:
    folder, found = readme
    environment = {**os.environ, "TIDEGATE_SERVER": make_server().address}
    environment.pop("PYTHONPATH", None)
    printed: list[str] = []
    worker: subprocess.Popen[bytes] | None = None
    command = ""

    def stop(process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0

    try:
        for note, language, text in found:
            if language == "python":
                write(folder, note, text)
                first = len(text.splitlines()) if "appended" not in note else 0
                assert first <= 6, "the first job has at most six lines"
                if "appended" in note:
                    # "start the worker again"
                    stop(worker)
                    worker = subprocess.Popen(command.split(), cwd=folder, env=environment)
            elif "tidegate-worker" in text:
                command = text.strip()
                worker = subprocess.Popen(command.split(), cwd=folder, env=environment)
            else:
                done = subprocess.run(
                    ["bash", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
                )
                assert done.returncode == 0, f"{text}\n{done.stderr}"
                if " -c " in text:
                    printed.append(done.stdout.strip())
        assert printed == ["Hello, Ada!", "11"]
    finally:
        stop(worker)


def test_the_page_about_python(tmp_path: Path, make_server: Callable[..., Any]) -> None:
    environment = {**os.environ, "TIDEGATE_SERVER": make_server().address, "PYTHONPATH": str(ROOT / "sdk/python/src")}
    found = blocks(ROOT / "docs/python.md")
    for note, _, text in found:
        if note.startswith("file "):
            write(tmp_path, note, text)
    worker = subprocess.Popen([sys.executable, "-m", "tidegate.worker", "shop"], cwd=tmp_path, env=environment)
    try:
        programs = [text for note, _, text in found if note == "run"]
        assert len(programs) == 2
        for program in programs:
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip().endswith("22.4 EUR to ops")
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0


OTHERS = """
import tidegate.testing
from album import album
from payments import charge

LIMITS = "domain: vendor\\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 1}}]\\n"


def test_children():
    with tidegate.testing.server() as server:
        assert server.run(album, ["a", "bc"]).result() == 3


def test_limited():
    with tidegate.testing.server(limits=LIMITS):
        assert charge("acme", 500) == "5.0 EUR of acme"
"""


def test_other_programs_of_the_guide_and_the_page_about_tests(tmp_path: Path) -> None:
    for page in ("docs/python.md",):
        for note, language, text in blocks(ROOT / page):
            assert language != "python" or note, f"{page}: nothing runs this block: {text}"
            if note.startswith("file "):
                write(tmp_path, note, text)
    (tmp_path / "test_others.py").write_text(OTHERS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "sdk/python/src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_page_of_the_package(tmp_path: Path, make_server: Callable[..., Any]) -> None:
    found = blocks(ROOT / "sdk/python/README.md")
    [first] = [text for note, _, text in found if note == "file hello.py"]
    assert len(first.splitlines()) <= 6
    (tmp_path / "hello.py").write_text(first)
    [command] = [text.split()[1:] for _, _, text in found if text.startswith("tidegate-worker")]
    [program] = [text for note, _, text in found if note == "run"]
    environment = {**os.environ, "TIDEGATE_SERVER": make_server().address, "PYTHONPATH": str(ROOT / "sdk/python/src")}
    worker = subprocess.Popen([sys.executable, "-m", "tidegate.worker", *command], cwd=tmp_path, env=environment)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "Hello, Ada!\n", done.stderr
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0


def test_every_option_and_field_is_in_the_page() -> None:
    from tidegate._jobs import Options
    from tidegate.context import Context

    page = (ROOT / "docs/python.md").read_text()
    options = {"params"} ^ set(Options.__annotations__)
    members = {name for name in vars(Context) if not name.startswith("_")} | {"deadline"}
    for name in options | (members - {"cancel", "lease", "workflow_id", "workflow_name", "job", "handler", "queue"}):
        assert f"`{name}" in page, f"docs/python.md does not name {name}"
