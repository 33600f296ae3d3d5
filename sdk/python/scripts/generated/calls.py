"""Writes _calls.py and _acalls.py: a method for each operation."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .schemas import HEADER, Schema, docstring, snake, type_of

JSON = "application/json"
# Sent twice, these could do more than once: a job that has ended again in between is run again.
_WITH_AS_OF = ("retryJob", "retryWorkflow", "restartJobs", "actOnWorkflows")


class Style(NamedTuple):
    title: str
    name: str
    define: str
    wait: str


SYNC = Style("The calls of the API.", "Calls", "def", "")
ASYNC = Style("The calls of the API, for asyncio.", "AsyncCalls", "async def", "await ")

_HEAD = '''
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ._http.address import part
from ._http.plan import creation_key, has_as_of
from ._span import Span, span
from .errors import TidegateError

if TYPE_CHECKING:
    from . import api


class {name}:
    """A method for each operation.

    All raise `Problem` when the server refuses, and `ServerUnavailable` when there is no answer.
    """

    {define} _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, object] | None = None,
        body: Any = None,
        key: str | None = None,
        safe: bool = True,
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Any:
        raise NotImplementedError
'''


_TRACE = ("traceparent", "tracestate")


def write(api: dict[str, Any], style: Style) -> str:
    text = HEADER.format(title=style.title) + _HEAD.format(name=style.name, define=style.define)
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if "text/event-stream" not in _content(operation):
                text += _method(style, method.upper(), path, operation)
    return text


def _content(operation: dict[str, Any]) -> dict[str, Any]:
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            return dict(answer.get("content", {}))
    return {}


def _method(style: Style, method: str, path: str, operation: dict[str, Any]) -> str:
    name = operation["operationId"]
    # The client sends the headers of a trace by itself.
    parameters = [one for one in operation.get("parameters", []) if one["name"] not in _TRACE]
    places = [one for one in parameters if one["in"] == "path"]
    queries = [one for one in parameters if one["in"] == "query"]
    has_key = any(one["name"] == "Idempotency-Key" for one in parameters)
    body = operation.get("requestBody")
    arguments = ["self", *(f"{one['name']}: str" for one in places)]
    if body:
        kind = type_of(body["content"][JSON]["schema"], "api.")
        arguments.append(f"body: {kind}" if body.get("required") else f"body: {kind} | None = None")
    named = [_named(one) for one in sorted(queries, key=lambda one: not one.get("required"))]
    named += ["idempotency_key: str | None = None"] if has_key else []
    arguments += ["*", *named] if named else []

    template = re.sub(r"\{(\w+)\}", r"{part(\1)}", path)
    sent = [f'"{method}"', f'f"{template}"' if places else f'"{path}"']
    if queries:
        sent.append(f"query={{{', '.join(_item(one) for one in queries)}}}")
    if body:
        sent.append("body=body")
    if has_key:
        sent.append("key=creation_key(idempotency_key, body)")
    if name in _WITH_AS_OF:
        sent.append("safe=has_as_of(body)")

    content = _content(operation)
    accept = next(iter(content), JSON)
    if accept != JSON:
        sent.append(f'accept="{accept}"')
    result = type_of(content[accept]["schema"], "api.") if content else "None"
    call = f"{style.wait}self._call({', '.join(sent)})"
    before, after = (f"answer: {result} = ", "            return answer\n") if content else ("", "")
    return (
        f"\n{_signature(style, snake(name), arguments, result)}{_doc(operation, parameters)}"
        f"        try:\n{_broken(before, call, sent, style)}{after}"
        "        except TidegateError as caught:\n            raise caught.with_traceback(None) from None\n"
    )


def _signature(style: Style, name: str, arguments: list[str], result: str) -> str:
    line = f"    {style.define} {name}({', '.join(arguments)}) -> {result}:\n"
    if len(line) <= 121:
        return line
    inner = "".join(f"        {argument},\n" for argument in arguments)
    return f"    {style.define} {name}(\n{inner}    ) -> {result}:\n"


def _broken(before: str, call: str, sent: list[str], style: Style) -> str:
    line = f"            {before}{call}\n"
    if len(line) <= 121:
        return line
    inner = "".join(_line(one) for one in sent)
    return f"            {before}{style.wait}self._call(\n{inner}            )\n"


def _line(one: str) -> str:
    line = f"                {one},\n"
    if len(line) <= 121 or not one.startswith("query={"):
        return line
    items = one[len("query={") : -1].split(", ")
    inner = "".join(f"                    {item},\n" for item in items)
    return f"                query={{\n{inner}                }},\n"


def _is_span(schema: Schema) -> bool:
    return bool(schema.get("$ref", "").endswith("/Span"))


def _named(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    kind = "Span" if _is_span(schema) else type_of(schema, "api.")
    return f"{parameter['name']}: {kind}" if parameter.get("required") else f"{parameter['name']}: {kind} | None = None"


def _item(parameter: dict[str, Any]) -> str:
    name = parameter["name"]
    if _is_span(parameter["schema"]):
        return f'"{name}": None if {name} is None else span({name})'
    return f'"{name}": {name}'


def _doc(operation: dict[str, Any], parameters: list[dict[str, Any]]) -> str:
    parts = [operation.get("summary", "").rstrip(".") + ".", operation.get("description", "")]
    for one in parameters:
        about = one.get("description")
        if about and one["in"] != "path":
            parts.append(f"`{snake(one['name']).replace('-_', '_').lstrip('_')}`: {about}")
    return docstring(" ".join(one for one in parts if one), 8)
