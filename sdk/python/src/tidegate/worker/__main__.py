"""`python -m tidegate.worker` is the command `tidegate-worker`."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
