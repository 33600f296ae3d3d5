"""The server of Tidegate, as a program in a Python package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def path() -> Path:
    """Where the program is."""
    return Path(__file__).with_name("tidegate")


def main() -> NoReturn:
    """Becomes the program, with the arguments of this one."""
    program = str(path())
    os.execv(program, [program, *sys.argv[1:]])
