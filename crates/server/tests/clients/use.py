"""Runs a workflow of two jobs through the generated client. Argument: the address of a server."""

import sys
from typing import TypeVar

from tidegate_client import AuthenticatedClient
from tidegate_client.api.jobs import claim_jobs, report_jobs
from tidegate_client.api.workflows import create_workflow, list_workflows, show_workflow
from tidegate_client.models import (
    Claim,
    ClaimResult,
    Created,
    Definition,
    JobDefinition,
    Outcome,
    Params,
    Problem,
    Report,
    ReportRequest,
    ReportResult,
    ShowWorkflowView,
    Workflow,
    WorkflowPage,
)

T = TypeVar("T")


def expect(kind: type[T], answer: object) -> T:
    assert isinstance(answer, kind), answer
    return answer


def main(address: str) -> None:
    # A server without TIDEGATE_TOKENS_FILE asks for no token, and ignores this one.
    client = AuthenticatedClient(base_url=address, token="any")

    params = Params.from_dict({"size": 1})
    jobs = [JobDefinition(handler="first", params=params), JobDefinition(handler="second", after="first")]
    created = expect(Created, create_workflow.sync(client=client, body=Definition(name="python", jobs=jobs)))
    assert (created.status, created.existing) == ("running", False)

    claim = Claim(queues=["default"], worker="python")
    claimed = expect(ClaimResult, claim_jobs.sync(client=client, body=claim)).jobs[0]
    assert (claimed.job, claimed.params.to_dict(), claimed.workflow_id) == ("first", {"size": 1}, created.id)

    report = Report(lease=claimed.lease, outcome=Outcome.SUCCEEDED, output={"bytes": 7})
    reported = expect(ReportResult, report_jobs.sync(client=client, body=ReportRequest(reports=[report], claim=claim)))
    assert (reported.reports[0].status, reported.reports[0].job_state) == (200, "succeeded")
    assert reported.jobs[0].inputs[0].output == {"bytes": 7}

    again = Report(lease="nonsense", outcome=Outcome.SUCCEEDED)
    refused = expect(ReportResult, report_jobs.sync(client=client, body=ReportRequest(reports=[again]))).reports[0]
    assert refused.status == 422
    assert expect(Problem, refused.error).code == "invalid_field"

    shown = expect(Workflow, show_workflow.sync(created.id, client=client, view=ShowWorkflowView.FULL))
    assert isinstance(shown.jobs, list)
    assert (shown.job_counts.succeeded, shown.jobs[0].output, shown.finished_at) == (1, {"bytes": 7}, None)

    page = expect(WorkflowPage, list_workflows.sync(client=client, name="python", limit=10))
    assert ([item.id for item in page.items], page.next_cursor) == ([created.id], None)

    wrong = Definition(name="wrong", jobs=[JobDefinition(handler="a", after=["b"])])
    problem = expect(Problem, create_workflow.sync(client=client, body=wrong))
    assert (problem.status, problem.code, problem.path) == (422, "unknown_dependency", "jobs[0].after[0]")
    assert isinstance(problem.request_id, str)


main(sys.argv[1])
