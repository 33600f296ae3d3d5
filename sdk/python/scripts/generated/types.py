"""Writes api.py: a type for each schema."""

from __future__ import annotations

import keyword
from typing import Any

from .schemas import HEADER, Schema, description_of, docstring, type_of

_HEAD = """
from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict
"""


def write(api: dict[str, Any]) -> str:
    schemas: dict[str, Schema] = api["components"]["schemas"]
    is_record = {name: "properties" in schema or "allOf" in schema for name, schema in schemas.items()}
    text = HEADER.format(title="What is sent to the API and what it answers: a type for each schema.") + _HEAD
    # Names come before what is made of them: an alias is read when the module is loaded.
    text += "\n"
    for name, schema in schemas.items():
        if not is_record[name]:
            text += f"{name}: TypeAlias = {type_of(schema)}\n{docstring(description_of(schema), 0)}\n"
    text = text.rstrip("\n") + "\n"
    for name in _sorted(schemas, is_record):
        text += _record(name, schemas[name])
    return text.rstrip("\n") + "\n"


def _sorted(schemas: dict[str, Schema], is_record: dict[str, bool]) -> list[str]:
    """A record that extends another one comes after it."""
    plain = [name for name in schemas if is_record[name] and "allOf" not in schemas[name]]
    return plain + [name for name in schemas if "allOf" in schemas[name]]


def _record(name: str, schema: Schema) -> str:
    bases: list[str] = []
    fields: dict[str, Schema] = dict(schema.get("properties", {}))
    required: set[str] = set(schema.get("required", []))
    for one in schema.get("allOf", []):
        if "$ref" in one:
            bases.append(type_of(one))
        else:
            fields |= one.get("properties", {})
            required |= set(one.get("required", []))
    text = ""
    for total in (True, False):
        # A name such as `from` cannot stand in a class.
        chosen = [field for field in fields if keyword.iskeyword(field) and (field in required) is total]
        words = {field: fields[field] for field in chosen}
        if words:
            base = f"_{name}Words" if total else f"_{name}MoreWords"
            items = ", ".join(f'"{field}": "{type_of(kind)}"' for field, kind in words.items())
            text += f'\n\n{base} = TypedDict("{base}", {{{items}}}{"" if total else ", total=False"})\n'
            bases.append(base)
    fields = {field: kind for field, kind in fields.items() if not keyword.iskeyword(field)}
    always = {field: kind for field, kind in fields.items() if field in required}
    others = {field: kind for field, kind in fields.items() if field not in required}
    if always and others:
        base = f"_{name}Required"
        text += f"\n\nclass {base}({', '.join(bases or ['TypedDict'])}):\n" + _fields(always)
        return text + _class(name, schema, [base], others, total=False)
    return text + _class(name, schema, bases, always or others, total=bool(always))


def _class(name: str, schema: Schema, bases: list[str], fields: dict[str, Schema], *, total: bool) -> str:
    head = ", ".join([*(bases or ["TypedDict"]), *([] if total else ["total=False"])])
    return f"\n\nclass {name}({head}):\n{docstring(description_of(schema), 4)}\n{_fields(fields)}"


def _fields(fields: dict[str, Schema]) -> str:
    return "".join(
        f"    {field}: {type_of(kind)}\n{docstring(description_of(kind), 4)}" for field, kind in fields.items()
    )
