"""Puts the program into the wheel, and names the machines that it runs on. `make wheels` sets both variables."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program, platform = os.environ.get("TIDEGATE_WHEEL_PROGRAM"), os.environ.get("TIDEGATE_WHEEL_PLATFORM")
        if not program or not platform:
            raise SystemExit("tidegate-server: build it with `make wheels`, which builds the program first")
        build_data["force_include"][program] = "tidegate_server/tidegate"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
