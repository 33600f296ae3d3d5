"""The fixture ``tidegate_server`` for pytest: a server for each test that asks for it. See :mod:`tidegate.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Server


@pytest.fixture
def tidegate_server() -> Iterator[Server]:
    """A server with workflows in memory and a clock of its own."""
    # Tests that do not use it do not wait for the import.
    from .testing import server

    with server() as one:
        yield one
