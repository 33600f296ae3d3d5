"""A fan-out and a join: each picture is halved by a job of its own, and a last job puts all of them on one sheet.

Run it beside a server:

    python examples/python/thumbnails.py

It paints the pictures itself, in the simplest format that viewers know (PPM), so it needs no image library.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidegate import job, workflow


@dataclass
class Picture:
    """Jobs pass on where a picture is, and not its pixels: outputs are kept in the store, and have at most 1 MiB."""

    path: str
    width: int
    height: int


# A file may be unreadable for a moment, so a job runs up to three times before it has failed.
@job(retries=2, backoff="200ms", timeout="1m")
def halve(path: str, folder: str) -> Picture:
    """Writes a picture of half the width and height into `folder`."""
    width, height, pixels = read(Path(path))
    rows = range(0, height - height % 2, 2)
    columns = range(0, width - width % 2, 2)
    small = b"".join(pixels[3 * (y * width + x) : 3 * (y * width + x) + 3] for y in rows for x in columns)
    target = Path(folder) / f"small-{Path(path).name}"
    write(target, len(columns), len(rows), small)
    return Picture(str(target), len(columns), len(rows))


@job
def sheet(pictures: list[Picture], folder: str) -> Picture:
    """Writes all pictures side by side into one. They have the same height."""
    opened = [read(Path(picture.path)) for picture in pictures]
    width, height = sum(picture.width for picture in pictures), pictures[0].height
    lines = [pixels[3 * y * wide : 3 * (y + 1) * wide] for y in range(height) for wide, _, pixels in opened]
    target = Path(folder) / "sheet.ppm"
    write(target, width, height, b"".join(lines))
    return Picture(str(target), width, height)


@workflow
def thumbnails(paths: list[str], folder: str) -> Picture:
    # Each call makes a job. `sheet` gets the outputs of all of them, so it runs when the last one has succeeded.
    return sheet([halve(path, folder) for path in paths], folder)


def read(path: Path) -> tuple[int, int, bytes]:
    """The width, the height and the pixels of a picture, three bytes each."""
    kind, size, _, pixels = path.read_bytes().split(b"\n", 3)
    if kind != b"P6":
        raise ValueError(f"{path} is no picture in the format P6")
    width, height = map(int, size.split())
    return width, height, pixels


def write(path: Path, width: int, height: int, pixels: bytes) -> None:
    """A job can run twice, for instance when its worker died. So a file gets its name only when it is whole."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + pixels)
    unfinished.replace(path)


def paint(folder: Path, number: int) -> str:
    """Makes a picture to work on."""
    path = folder / f"picture-{number:02}.ppm"
    pixels = b"".join(bytes((x * 2 % 256, y * 2 % 256, number * 20 % 256)) for y in range(96) for x in range(128))
    write(path, 128, 96, pixels)
    return str(path)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="thumbnails-"))
    paths = [paint(folder, number) for number in range(12)]
    run = thumbnails.start(paths, str(folder))
    print(f"workflow {run.id}: {len(paths)} pictures")
    made = run.result(timeout=60)
    print(f"sheet of {made.width} x {made.height} pixels: {made.path}")


if __name__ == "__main__":
    # The worker is another process, as it would be on another machine. It imports this file and runs its jobs.
    worker = subprocess.Popen([sys.executable, "-m", "tidegate.worker", "thumbnails"], cwd=Path(__file__).parent)
    try:
        main()
    finally:
        worker.terminate()
        worker.wait()
