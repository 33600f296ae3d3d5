"""Every call of the API once, for the client that blocks and for the one of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidegate import AsyncClient, Client, NotFound
from tidegate._http.events import Event


class Caller:
    """A client whose calls are made by name, and blocks. `called` has the names."""

    def __init__(self, server: str, **settings: Any) -> None:
        self.called: set[str] = set()

    def __call__(self, call: str, /, *arguments: Any, **named: Any) -> Any:
        self.called.add(call)
        return self.call(call, arguments, named)

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        raise NotImplementedError

    def watch(self, name: str, what: str, take: Callable[[Event], object], most: int = 1_000_000) -> None:
        """Gives events to `take` until the stream ends, or there were `most` of them."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncAsk(Caller):
    def __init__(self, server: str, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._client = Client(server, **settings)

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return getattr(self._client, name)(*arguments, **named)

    def watch(self, name: str, what: str, take: Callable[[Event], object], most: int = 1_000_000) -> None:
        self.called.add(name)
        for number, event in enumerate(getattr(self._client, name)(what), 1):
            take(event)
            if number == most:
                return

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return repr(self._client)


class AsyncAsk(Caller):
    def __init__(self, server: str, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._client = AsyncClient(server, **settings)
        self._loop = asyncio.new_event_loop()

    def call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self._loop.run_until_complete(getattr(self._client, name)(*arguments, **named))

    def watch(self, name: str, what: str, take: Callable[[Event], object], most: int = 1_000_000) -> None:
        self.called.add(name)

        async def follow() -> None:
            events = getattr(self._client, name)(what)
            number = 0
            async for event in events:
                take(event)
                number += 1
                if number == most:
                    break
            await events.aclose()

        self._loop.run_until_complete(follow())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def __repr__(self) -> str:
        return repr(self._client)


both = pytest.mark.parametrize("ask", [SyncAsk, AsyncAsk])


def every_call(ask: Caller) -> None:
    """Makes each call, and looks at what it answers."""
    assert ask("is_alive").strip() == "ok"
    assert ask("is_ready").strip() == "ready"
    with pytest.raises(NotFound):
        ask("advance_clock", {"by": "1s"})
    assert ask("show_version")["api"] == "v1"
    assert ask("show_status")["workflows"]["ready"] is True
    assert ask("show_overview")["step_ms"] == 10_000
    first = {"name": "one", "handler": "a", "queue": "web"}
    jobs = [first, {"name": "two", "handler": "b", "queue": "web", "after": "one"}]
    id = ask("create_workflow", {"name": "report", "jobs": jobs, "tags": ["t"]}, idempotency_key="k/1")["id"]
    _run(ask, id)
    _read_all(ask, id)
    _act(ask, jobs)
    _queues(ask)
    _limits(ask)


def _run(ask: Caller, id: str) -> None:
    assert ask("drain_worker", "me")["draining"] is True
    assert ask("undrain_worker", "me")["draining"] is False
    claim = {"queues": ["web"], "worker": "me", "wait": "5s"}
    [first] = ask("claim_jobs", claim)["jobs"]
    note = {"lease": first["lease"], "log": ["hello"], "progress": {"percent": 40}}
    extended = ask("extend_leases", {"leases": [first["lease"]], "notes": [note], "worker": "me"})
    assert (extended["leases"][0]["status"], extended["notes"][0]["status"]) == (200, 200)
    report = {"lease": first["lease"], "outcome": "succeeded", "output": {"n": 1}}
    reported = ask("report_jobs", {"reports": [report], "claim": claim})
    assert reported["reports"][0]["status"] == 200
    [second] = reported["jobs"]
    assert second["inputs"][0]["output"] == {"n": 1}
    seen: list[Event] = []
    ask.watch("watch_worker", "me", seen.append, most=1)
    assert seen == [Event("drain", {"drain": False})]
    assert [worker["name"] for worker in ask("list_workers", limit=10)["items"]] == ["me"]
    failed = {"lease": second["lease"], "outcome": "failed", "error": {"kind": "E", "message": "m"}, "retry": "never"}
    assert ask("report_jobs", {"reports": [failed]})["reports"][0]["job_state"] == "failed"


def _read_all(ask: Caller, id: str) -> None:
    assert ask("show_workflow", id, view="jobs", wait=0.5)["status"] == "failed"
    assert ask("find_workflow", key="k/1")["id"] == id
    assert ask("show_job", id, "one")["progress"]["percent"] == 40
    assert ask("read_job_log", id, "one", limit=5)["items"][0]["text"] == "hello"
    assert len(ask("list_jobs", id, state="failed")["items"]) == 1
    page = ask("list_workflows", status="failed", name="report", tag="t", order="oldest", limit=1, id_prefix=id[:6])
    assert [workflow["id"] for workflow in page["items"]] == [id]
    assert ask("count_workflows", by="name")["by_name"]["report"]["failed"] == 1
    assert ask("count_workflows", status="failed", error="NoSuchError", handler="h")["total"] == 0
    assert ask("draw_dot", id).startswith("digraph")
    assert "one" in ask("draw_mermaid", id)
    assert ask("draw_svg", id).startswith("<svg")
    assert "one" in ask("draw_text", id, width=60, ascii=True)
    assert len(ask("lay_out_graph", id)["nodes"]) == 2


def _act(ask: Caller, jobs: list[dict[str, Any]]) -> None:
    definition = {"name": "other", "start": "manual", "jobs": jobs}
    items = ask("create_workflows", {"workflows": [definition, definition]})["items"]
    assert [item["status"] for item in items] == [201, 201]
    id = items[0]["id"]
    assert ask("start_workflow", id)["status"] == "running"
    assert ask("pause_workflow", id)["status"] == "paused"
    assert ask("resume_workflow", id)["status"] == "running"
    assert ask("expire_workflow", id, {"after": "90d"})["id"] == id
    assert ask("mark_job_succeeded", id, "one", {"output": 1})["already"] is False
    assert ask("cancel_job", id, "two")["already"] is False
    assert ask("retry_job", id, "two")["status"] == "running"
    assert ask("skip_job", id, "two")["status"] == "succeeded"
    assert ask("restart_jobs", id, {"jobs": ["one"], "cascade": True})["status"] == "running"
    assert ask("cancel_workflow", id)["status"] == "cancelled"
    assert ask("retry_workflow", id)["status"] == "running"
    assert ask("act_on_workflows", {"action": "cancel", "filter": {"name": "other"}})["matched"] == 2
    seen: list[Event] = []
    ask.watch("watch_workflow", id, seen.append, most=1)
    assert (seen[0].kind, seen[0].data["id"]) == ("workflow", id)
    assert ask("delete_workflow", id) is None


def _queues(ask: Caller) -> None:
    assert ask("pause_queue", "web")["paused"] is True
    assert ask("resume_queue", "web")["paused"] is False
    assert [queue["name"] for queue in ask("list_queues", limit=5)["items"]] == ["web"]
    limits = {"limits": [{"concurrency": 3, "of": "queue"}]}
    for kind in ("queue", "handler"):
        assert ask(f"set_{kind}_limits", "web/é", limits)["name"] == "web/é"
        assert len(ask(f"show_{kind}_limits", "web/é")["limits"]) == 1
        assert ask(f"remove_{kind}_limits", "web/é") is None
    weights = {"weights": [{"entries": [["tenant", "acme"]], "weight": 3}]}
    assert len(ask("set_queue_weights", "web", weights)["weights"]) == 1
    assert ask("show_queue_weights", "web")["name"] == "web"
    assert ask("remove_queue_weights", "web") is None


def _limits(ask: Caller) -> None:
    assert ask("list_limits", limit=5)["items"] == []
    question = {"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "acme"}]}]}
    assert ask("check_limits", question)["code"] == "ok"
    override = {"domain": "shop", "entries": [["tenant", "acme"]], "pause": True, "for": "10m"}
    assert ask("set_override", override)["effect"] == "paused"
    assert len(ask("list_overrides")["items"]) == 1
    assert ask("remove_override", domain="shop", entries='[["tenant","acme"]]') is None
    assert "keys" in ask("show_top_keys")
    assert ask("list_refusals", range="5m", rule="a.b")["items"] == []
    assert ask("show_limit_series", rule=["a.b", "c"], range="15m")["items"] == []
    assert "groups" in ask("list_failures", range="24h")
    assert ask("search", q="nowhere to be found")["items"] == []
    shown = ask("show_configuration", limit=5)
    assert shown["load"]["refused"] is None
    (domain,) = shown["domains"]
    level = ask("show_configuration", domain=domain["name"], entries="[]")["descriptors"]
    assert [one["key"] for one in level] == [one["key"] for one in domain["descriptors"]]
