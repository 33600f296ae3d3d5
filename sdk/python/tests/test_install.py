"""The wheels in clean virtual environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SDK = Path(__file__).parents[1]
SERVER = SDK.parent / "server"
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]


def python(version: str) -> str | None:
    """An interpreter of this version: on the path, or one of pyenv's."""
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    for folder in sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*")):
        return str(folder / "bin/python")
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return found
    return None


def needed(version: str) -> str:
    """An interpreter of this version. This machine may have one version only; the machine of CI has all."""
    if (found := python(version)) is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"there is no Python {version}")
    pytest.skip(f"there is no Python {version} here")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    program = os.environ.get("TIDEGATE_BINARY") or pytest.fail(
        "set TIDEGATE_BINARY to the path of the server's program"
    )
    settings = {
        **os.environ,
        "TIDEGATE_WHEEL_PROGRAM": program,
        "TIDEGATE_WHEEL_PLATFORM": f"linux_{os.uname().machine}",
    }
    for package in (SDK, SERVER):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=package, env=settings, check=True, capture_output=True)
    return folder


def installed(folder: Path, interpreter: str, *wheels: str) -> Path:
    """The folder of programs of a new environment with these wheels and nothing else: pip may not look for others."""
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    pip = [
        folder / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        *wheels,
    ]
    subprocess.run(pip, check=True)
    return folder / "bin"


JOBS = """
from dataclasses import dataclass
from tidegate import job, workflow

@dataclass
class Sum:
    of: list[int]

@job
def add(a: int, b: int) -> int:
    return a + b

@job(limits=[])
async def gather(numbers: list[int]) -> Sum:
    return Sum(numbers)

@workflow
def report(first: int) -> Sum:
    return gather.step([add(first, 2), add(first, 3)])
"""
USE = """
import jobs, tidegate, tidegate.testing
with tidegate.testing.server() as server:
    print(tidegate.__version__, jobs.add(1, 2), jobs.add.params(1, b=2), server.run(jobs.report, 1).result())
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_it_installs_without_any_other_package(version: str, wheels: Path, tmp_path: Path) -> None:
    programs = installed(tmp_path / "environment", needed(version), str(next(wheels.glob("tidegate-*.whl"))))
    (tmp_path / "jobs.py").write_text(JOBS)
    done = subprocess.run([programs / "python", "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "0.1.0 3 {'a': 1, 'b': 2} Sum(of=[3, 4])\n", done.stderr
    done = subprocess.run(
        [programs / "tidegate-worker", "nothing"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "tidegate-worker: there is no module 'nothing'. Run this where it can be imported, or install its package"
    )


def test_the_metadata_names_no_dependency_and_the_version_of_the_server(wheels: Path) -> None:
    with zipfile.ZipFile(next(wheels.glob("tidegate-*.whl"))) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("METADATA")]
        metadata = wheel.read(name).decode().splitlines()
        assert "tidegate/py.typed" in wheel.namelist()
    assert [line for line in metadata if line.startswith("Requires-Dist")] == [
        "Requires-Dist: tidegate-server==0.1.0; extra == 'server'"
    ]
    assert 'version = "0.1.0"' in (SDK.parents[1] / "Cargo.toml").read_text()


def test_the_server_is_in_a_wheel(wheels: Path, tmp_path: Path) -> None:
    both = [str(path) for path in sorted(wheels.glob("*.whl"))]
    programs = installed(tmp_path / "environment", sys.executable, *both)
    done = subprocess.run([programs / "tidegate-server", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tidegate 0.1.0")


#: What takes the time of an import, or is another package's: it is imported when it is needed.
HEAVY = {
    *("asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "ssl", "urllib.request"),
    *("opentelemetry", "pydantic", "typing_extensions"),
}
#: What the clients need, and jobs and workflows do not.
HEAVIER = {
    *("argparse", "json", "pathlib", "random", "select", "socket", "subprocess", "tempfile", "traceback", "urllib"),
    *("uuid", "tidegate._run", "tidegate.client", "tidegate.limits"),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("modules", "unneeded"),
    [("tidegate", HEAVY | HEAVIER), ("tidegate.client, tidegate.limits, tidegate._run", HEAVY | {"tempfile"})],
)
def test_it_is_imported_without_what_it_may_not_need(version: str, modules: str, unneeded: set[str]) -> None:
    # -S: packages of the environment may load modules when Python starts.
    script = f"import sys; before = set(sys.modules); import {modules}; print(*sorted(set(sys.modules) - before))"
    command = [needed(version), "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SDK / "src")})
    assert "tidegate.errors" in done.stdout.split()
    assert set(done.stdout.split()) & unneeded == set()
