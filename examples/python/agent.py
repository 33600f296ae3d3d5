"""An agent: a loop of calls of a model and of tools, under a budget of tokens.

Start the server with the limits of this folder, then run the agent:

    RUNTIME_ROOT=examples RUNTIME_SUBDIRECTORY=python tidegate
    python examples/python/agent.py

The model is a function that always says the same, so it needs no network and no key.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate import NonRetryable, current, job, limit, workflow

# The most steps, and the tokens of a second in config/model.yaml.
STEPS, BUDGET = 8, 120


@dataclass
class Message:
    """`who` is user, model, or the name of a tool. `tool` is the one that the model wants to call with `text`."""

    who: str
    text: str
    tool: str | None = None


@job(retries=3, backoff="500ms", timeout="2m")
def think(tenant: str, messages: list[Message]) -> Message:
    """One call of the model. Put a call of a real one in its place; on its 429, current().throttle(seconds)."""
    current().log(f"{tokens(messages)} tokens")
    time.sleep(0.05)
    known = {message.who: message.text for message in messages}
    if "search" not in known:
        return Message("model", "height of the Eiffel Tower in metres", tool="search")
    if "calculate" not in known:
        return Message("model", f"{known['search']} * 100 / 8", tool="calculate")
    return Message("model", f"It is as tall as {known['calculate']} pencils of 8 cm.")


# A tool is a job like any other: it can have a queue of workers with the right machine, a timeout, retries and limits.
@job
def search(text: str) -> str:
    return {"height of the Eiffel Tower in metres": "330"}.get(text, "nothing found")


@job
def calculate(text: str) -> str:
    """Computes a row of numbers with * and / between them, and nothing else: a model may write anything."""
    first, *rest = text.split()
    value = float(first)
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        if sign not in ("*", "/"):
            raise NonRetryable(f"cannot compute {text!r}: {sign} is neither * nor /")
        value = value * float(number) if sign == "*" else value / float(number)
    return f"{value:g}"


TOOLS = {"search": search, "calculate": calculate}


@job
def agent(tenant: str, question: str) -> str:
    """Lets the model and its tools talk until there is an answer.

    Each step is a job of its own. While one is not over, result() gives this job back to its queue, and it runs again
    from its beginning later: spawn() then finds the steps that were done. So no call is paid for twice, even if the
    worker dies in between.
    """
    messages, spent = [Message("user", question)], 0
    for step in range(STEPS):
        current().progress(100 * step / STEPS, f"step {step + 1}, {spent} tokens")
        # The limit counts tokens and not calls, so a long talk takes more. One that needs more than a second has would
        # wait for ever.
        cost = tokens(messages)
        if cost > BUDGET:
            raise NonRetryable(f"step {step + 1} needs {cost} tokens, more than the {BUDGET} of a second")
        budget = limit("model", tenant="$.tenant", hits=cost)
        reply = current().spawn(think.options(limits=[budget]), tenant, messages).result()
        spent += cost
        messages.append(reply)
        if reply.tool is None:
            # Said here and not in between: what runs again would log again.
            current().log(f"{step + 1} steps, {spent} tokens")
            return reply.text
        messages.append(Message(reply.tool, current().spawn(TOOLS[reply.tool], reply.text).result()))
    raise RuntimeError(f"no answer after {STEPS} steps")


def tokens(messages: list[Message]) -> int:
    """About as many as a model would count: one for four letters, and 40 for the answer."""
    return 40 + sum(len(message.text) for message in messages) // 4


@workflow
def answer(tenant: str, question: str) -> str:
    return agent(tenant, question)


def main() -> None:
    run = answer.start("acme", "How many pencils are as tall as the Eiffel Tower?")
    print(f"workflow {run.id}")
    client, furthest = run.client, -1
    while run.status == "running":
        progress = client.show_job(run.id, "agent").get("progress")
        # A job that runs again from its beginning reports the same progress again.
        if progress and progress["percent"] > furthest:
            furthest = progress["percent"]
            print(f"{furthest:3} % {progress['text']}")
        time.sleep(0.05)
    print(run.result())
    for line in client.read_job_log(run.id, "agent")["items"]:
        print(line["text"])


if __name__ == "__main__":
    # The worker is another process, as it would be on another machine. It imports this file and runs its jobs.
    worker = subprocess.Popen([sys.executable, "-m", "tidegate.worker", "agent"], cwd=Path(__file__).parent)
    try:
        main()
    finally:
        worker.terminate()
        worker.wait()
