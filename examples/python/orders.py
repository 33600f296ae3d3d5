"""An order: a bank that fails at first, a person who decides, and what undoes it when something goes wrong.

Run it beside a server, and answer the question with yes or no:

    python examples/python/orders.py

`--answer yes` answers it without asking.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidegate import Client, NonRetryable, api, current, job, workflow

PEOPLE = "people"
ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


@dataclass
class Order:
    number: int
    customer: str
    cents: int


# A failed attempt is followed by another one after 200 ms, then 400 ms, then 800 ms.
@job(retries=3, backoff="200ms", timeout="1m")
def charge(order: Order) -> str:
    """Takes the money, and returns the receipt. The bank does not answer the first call."""
    if order.cents <= 0:
        # Another attempt would not help.
        raise NonRetryable(f"order {order.number} costs {order.cents} cents")
    if current().attempt == 1:
        raise ConnectionError("the bank does not answer")
    # A real bank gets the number of the order as a key, so that an attempt whose end was lost takes no money twice.
    return f"receipt-{order.number}"


# No worker serves this queue. The program of the person claims the job and reports how it ended, as a worker does.
@job(queue=PEOPLE)
def approve(order: Order, receipt: str) -> str:
    """Returns the name of the person who agreed."""
    raise NotImplementedError("people do this")


@job
def ship(order: Order, approved_by: str) -> str:
    current().log(f"approved by {approved_by}")
    return f"parcel-{order.number}"


@job(retries=10, backoff="1s")
def refund(order: Order, receipt: str | None) -> str:
    """Gives the money back, if it was taken."""
    # With a rule other than all_success, a job sees how the jobs before it ended, and why.
    failed = [f"{one['job']}: {error['message']}" for one in current().inputs if (error := one.get("error"))]
    current().log("; ".join(failed) or "nothing failed")
    return f"nothing to pay back for order {order.number}" if receipt is None else f"{receipt} is paid back"


@workflow(tags=["shop"])
def order(one: Order) -> dict[str, str]:
    receipt = charge(one)
    approved_by = approve(one, receipt)
    parcel = ship(one, approved_by)
    # Runs when one of these has failed, or cannot run because of a failure. When all of them succeed, it is skipped.
    paid_back = refund.options(after=[approved_by, parcel], rule="any_failed")(one, receipt)
    return {"parcel": parcel, "refund": paid_back}


def decide(answer: str | None) -> bool:
    """Waits for a job of people, asks the person at the terminal, and reports. Returns whether there was one.

    In a shop this is a web page. It may answer after days: a lease can be extended, and when it ends without an
    extension, the question comes again.
    """
    client = Client()
    claimed = client.claim_jobs({"queues": [PEOPLE], "worker": "ada", "wait": "20s", "lease": "1h"})
    for question_job in claimed["jobs"]:
        wanted = question_job["params"]["order"]
        question = f"{wanted['customer']} wants to pay {wanted['cents'] / 100:.2f}. Send it (yes or no)? "
        if answer is None:
            reply = input(question)
            while reply.strip().lower() not in ANSWERS:
                reply = input("Please answer yes or no: ")
        else:
            reply = answer
            print(f"{question}{reply}")
        if ANSWERS[reply.strip().lower()]:
            report: api.Report = {"lease": question_job["lease"], "outcome": "succeeded", "output": "ada"}
        else:
            error: api.ReportError = {"kind": "Refused", "message": "ada said no"}
            report = {"lease": question_job["lease"], "outcome": "failed", "retry": "never", "error": error}
        client.report_jobs({"reports": [report]})
    return bool(claimed["jobs"])


def main(answer: str | None) -> None:
    run = order.start(Order(17, "Bell", 12_50))
    print(f"workflow {run.id}")
    decide(answer)
    status = run.wait(timeout=60)
    for one in run.jobs():
        errors = [error["message"] for error in one.get("errors") or []]
        print(f"{one['name']:8} {one['state']:10} {one.get('output') or ''} {errors or ''}".rstrip())
    # A workflow with a failed job has failed, also when another job has put things right.
    print(f"the workflow has {status}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="An order that a person decides on")
    arguments.add_argument("--answer", choices=["yes", "no"], help="what the person says")
    options = arguments.parse_args()
    # The worker is another process, as it would be on another machine. It does not serve the queue of people. What it
    # says about its jobs would run into the question.
    command = [sys.executable, "-m", "tidegate.worker", "orders", "--queues", "default"]
    worker = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL)
    try:
        main(options.answer)
    finally:
        worker.terminate()
        worker.wait()
