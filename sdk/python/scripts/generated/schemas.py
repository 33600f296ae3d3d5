"""Schemas of OpenAPI as types of Python."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

Schema = dict[str, Any]

HEADER = '"""{title}\n\nThis file is written by scripts/generate.py from docs/openapi.json. Do not change it.\n"""\n'
_WIDTH = 120
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def type_of(schema: Schema, prefix: str = "") -> str:
    """Returns the type of a schema. Named ones get `prefix`, such as `api.`."""
    if "$ref" in schema:
        return prefix + str(schema["$ref"]).rpartition("/")[2]
    if "oneOf" in schema:
        return " | ".join(type_of(one, prefix) for one in schema["oneOf"])
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(word) for word in schema['enum'])}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds: list[str] = kind  # pyright: ignore[reportUnknownVariableType]
        return " | ".join(type_of({**schema, "type": one}, prefix) for one in kinds)
    if kind == "array":
        return f"list[{type_of(schema['items'], prefix)}]"
    if kind == "object":
        inner = schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return "dict[str, Any]"
        values: Schema = inner  # pyright: ignore[reportUnknownVariableType]
        return f"dict[str, {type_of(values, prefix)}]"
    return _PLAIN[str(kind)] if kind is not None else "Any"


def description_of(schema: Schema) -> str:
    """Returns the description of a field: its own, or that of its first reference."""
    text = schema.get("description", "")
    for one in schema.get("oneOf", []):
        text = text or one.get("description", "")
    return str(text)


def docstring(text: str, indent: int) -> str:
    """Returns a text as a docstring, with broken lines, or nothing for an empty text."""
    if not text:
        return ""
    margin = " " * indent
    text = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    if len(text) + indent + 6 <= _WIDTH:
        return f'{margin}"""{text}"""\n'
    first, *rest = textwrap.wrap(text, _WIDTH - indent - 3)
    if not rest:
        return f'{margin}"""{first}\n{margin}"""\n'
    lines = [first, *textwrap.wrap(" ".join(rest), _WIDTH - indent)]
    return f'{margin}"""' + f"\n{margin}".join(lines) + f'\n{margin}"""\n'


def snake(name: str) -> str:
    """Returns `showJob` as `show_job`."""
    return re.sub(r"([A-Z])", lambda letter: "_" + letter[1].lower(), name)
