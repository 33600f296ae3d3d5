"""Writes the types and the calls of the SDK from docs/openapi.json.

python scripts/generate.py            writes the files
python scripts/generate.py --check    fails when they are not what this script would write
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.generated import calls, types

SDK = Path(__file__).resolve().parents[1]
OPENAPI = SDK.parents[1] / "docs" / "openapi.json"


def without_page(api: dict[str, Any]) -> dict[str, Any]:
    """The description without what only the page in a browser asks for."""
    for path, operations in list(api["paths"].items()):
        kept = {method: one for method, one in operations.items() if "page" not in one["tags"]}
        api["paths"][path] = kept
        if not kept:
            del api["paths"][path]
    for schema in ("SignIn", "Session", "OfEvent"):
        del api["components"]["schemas"][schema]
    return api


def main() -> int:
    api = without_page(json.loads(OPENAPI.read_text("utf-8")))
    package = SDK / "src" / "tidegate"
    files = {
        package / "api.py": types.write(api),
        package / "_calls.py": calls.write(api, calls.SYNC),
        package / "_acalls.py": calls.write(api, calls.ASYNC),
    }
    wrong = [path.name for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        if wrong:
            names = ", ".join(wrong)
            print(f"{names}: not what docs/openapi.json says. Run python scripts/generate.py", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in files.items():
        path.write_text(text, "utf-8")
    print(f"changed: {', '.join(wrong) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
