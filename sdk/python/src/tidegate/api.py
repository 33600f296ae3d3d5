"""What is sent to the API and what it answers: a type for each schema.

This file is written by scripts/generate.py from docs/openapi.json. Do not change it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

BulkAction: TypeAlias = Literal["cancel", "retry", "pause", "resume", "delete", "start", "expire"]
"""Action on each workflow."""

JobState: TypeAlias = str
"""State of a job. One of `waiting`, `scheduled`, `ready`, `running`, `succeeded`, `failed`, `cancelled`, `skipped`.
More words may be added.
"""

Names: TypeAlias = str | list[str]
"""One name, or a list of names."""

OnFailure: TypeAlias = Literal["continue", "fail_fast"]
"""Effect of the failure of one job on the others."""

OnFailureShown: TypeAlias = str
"""Effect of the failure of one job on the others. One of `continue`, `fail_fast`. More words may be added."""

Outcome: TypeAlias = Literal["succeeded", "failed", "given_back", "not_begun", "throttled", "crashed"]
"""How an attempt ended; `not_begun` when the worker never started it: the job keeps its place in the queue, and its
hits under rate limits are refunded; `given_back` when the worker broke it off, `throttled` when the service behind a
rate limit of the job refused it, `crashed` when the process that ran it has died, as its parent reports.
"""

Params: TypeAlias = dict[str, Any]
"""Any object."""

Point: TypeAlias = list[int]
"""A point: x and y."""

Retention: TypeAlias = str
"""A time span such as `7d`, or `forever`."""

RetryWish: TypeAlias = Literal["policy", "never"]
"""Whether another attempt may follow: as the definition says, or never."""

Rule: TypeAlias = Literal["all_success", "all_done", "any_success", "any_failed", "none_failed"]
"""Which outcomes of the jobs before it let a job run."""

RuleShown: TypeAlias = str
"""Which outcomes of the jobs before it let a job run. One of `all_success`, `all_done`, `any_success`, `any_failed`,
`none_failed`. More words may be added.
"""

Scope: TypeAlias = Literal["workflow", "queue", "all"]
"""Among which jobs those are counted that run at the same time: those of the same workflow, of the same queue, or all.
"""

SearchKind: TypeAlias = Literal["name", "workflow", "tag", "limit", "queue", "worker", "handler"]
"""Kind of a result. Of equally good results, those of the first kinds come first."""

ServerState: TypeAlias = Literal["ok", "degraded", "draining"]
"""The state of the server in a word: `draining` when it is about to end, `degraded` when something of `limits` or
`workflows` does not work or a configuration was refused, `ok` otherwise.
"""

Span: TypeAlias = str
"""A time span: numbers with units such as `500ms`, `30s`, `1h30m` or `7d`, of at most 36500 days. A bare number is
refused.
"""

Start: TypeAlias = Literal["now", "manual"]
"""When a workflow starts: at once, or by a later call."""

Status: TypeAlias = str
"""State of a workflow. One of `pending`, `running`, `paused`, `succeeded`, `failed`, `cancelled`. More words may be
added.
"""

StatusNumbers: TypeAlias = dict[str, int]
"""Numbers of workflows by status."""

Time: TypeAlias = str
"""A moment as RFC 3339 writes it: UTC with microseconds, such as `2026-11-21T12:00:00.000000Z`."""

WorkflowId: TypeAlias = str
"""26 characters that name a workflow. Ids sort by the time of creation."""

Works: TypeAlias = Literal["yes", "partly", "no"]
"""Whether something works."""


class Advance(TypedDict, total=False):
    """How far to move the clock: one of the two."""

    by: Span | None
    """So far. Leases end, timeouts pass and workflows are removed as if that time had passed."""
    to_next: bool | None
    """To the first moment at which a job is ready that waits for a time, or a rate limit has room again for jobs that
    wait for it. Ends of leases, timeouts and removals are not waited for. Without such a moment, the clock stays.
    """


class AttemptError(TypedDict):
    """Error of one attempt."""

    at: Time
    attempt: int
    kind: str
    message: str
    trace: str | None
    worker: str | None


class Batch(TypedDict):
    """Workflows to create. They may have 131,072 jobs in all."""

    workflows: list[Definition]


class _BatchItemRequired(TypedDict):
    status: int
    """The status that a single call would have got."""


class BatchItem(_BatchItemRequired, total=False):
    """Result of one workflow: `id`, `existing` and perhaps `warnings`, or `error`."""

    error: Problem
    existing: bool
    """Whether it was created before, with the same idempotency key."""
    id: WorkflowId
    warnings: list[CreationWarning]
    """Parts of it that have no effect, at most eight; left out if there are none."""


class BatchResult(TypedDict):
    """Result of each workflow, in the order of the request."""

    items: list[BatchItem]


class _BulkRequired(TypedDict):
    action: BulkAction
    filter: BulkFilter


class Bulk(_BulkRequired, total=False):
    """Action, and the workflows to apply it to."""

    after: Retention | None
    """How long to keep them after their end: with `expire`, and only then."""
    as_of: str | None
    """With `retry`: only jobs that ended by then. With it, the call can be sent twice."""
    cursor: str | None
    """The `next_cursor` of the call before."""
    limit: int | None
    """How many at most, the oldest first; 1000 if left out."""


class BulkFailure(TypedDict):
    """A workflow to which it could not be done."""

    error: Problem
    id: WorkflowId
    status: int
    """The status that a single call would have got."""


class BulkFilter(TypedDict, total=False):
    """Which workflows: those to which all of this applies."""

    created_after: str | None
    """Created then or later."""
    created_before: str | None
    """Created before then."""
    error: str | None
    """With a failed job that has this kind of error; only with the status `failed`."""
    handler: str | None
    """With a failed job of this handler, and of that `error` if there is one; only with the status `failed`."""
    ids: Names | None
    """One of these; at most 1,000, and at least one."""
    name: str | None
    """Of this name."""
    q: str | None
    """With this text, as in the list: the call acts on those that it finds. `next_cursor` leads to those that it has
    not read.
    """
    range: str | None
    """Created at most so long ago, such as `15m`."""
    status: Names | None
    """With one of these statuses; with any if this is left out. At least one."""
    tag: str | None
    """With this tag."""


class _BulkResultRequired(TypedDict):
    done: int
    failed: list[BulkFailure]
    matched: int
    more: bool
    """Whether there are more that match, or with `q` that may match."""
    next_cursor: str | None
    """Leads to those after these; null when there are none."""


class BulkResult(_BulkResultRequired, total=False):
    """How many workflows matched, and which of them refused."""

    incomplete: Incomplete
    """Where workflows may match that were left alone, because a part of the store does not answer. Left out when there
    are none.
    """
    unread: int
    """With `error`, `handler` or `q`: how many failed workflows were left alone, because they are too large to read
    here. Left out when none was.
    """


class _ClaimRequired(TypedDict):
    queues: list[str]
    """The queues to take jobs from."""
    worker: str
    """Name of the worker: 1 to 200 bytes that people will read."""


class Claim(_ClaimRequired, total=False):
    """Claim of a worker."""

    handlers: list[str] | None
    """Names of the handlers that the worker has: it gets only jobs with these handlers. If left out, it gets jobs with
    any handler.
    """
    lease: Span | None
    """How long the jobs are the worker's unless it extends that: 5s to 1h, 30s if left out."""
    limit: int | None
    """How many jobs at most; 1 if left out."""
    uptime: Span | None
    """How long the worker has run, such as `1500ms`: one that started after it was drained does not drain."""
    wait: Span | None
    """How long to wait for work: at most 60s, not at all if left out."""


class _ClaimResultRequired(TypedDict):
    jobs: list[ClaimedJob]


class ClaimResult(_ClaimResultRequired, total=False):
    """The jobs that a worker gets. There are none when none came in time."""

    drain: bool
    """The worker should drain: it gets no more jobs. Left out otherwise."""


class _ClaimedJobRequired(TypedDict):
    attempt: int
    """Which attempt this is, from 1."""
    fence: int | None
    """The number of this lease: higher than those of all earlier leases of the job, also after a restart."""
    handler: str
    inputs: list[JobInput]
    """Results of the jobs before it. With the rule `all_success`, jobs that returned nothing are left out."""
    job: str
    """The name of the job."""
    lease: str
    """Lease to report with."""
    lease_expires_at: Time
    omitted_inputs: list[str]
    """Names of jobs before it whose output or error is too large for this answer. Read each by itself."""
    params: dict[str, Any]
    """The workflow's globals and the job's params as one object. Where both have a key, it is the value of the params,
    also where both values are objects.
    """
    queue: str
    timeout_ms: int | None
    """An attempt that takes longer has failed; null when there is no limit."""
    workflow_id: WorkflowId
    workflow_name: str


class ClaimedJob(_ClaimedJobRequired, total=False):
    """A job as a worker gets it."""

    suspect: bool
    """Its last two attempts were lost, or their process died: run it alone in a new process, and report `crashed` with
    `alone` if that dies. Left out otherwise.
    """
    traceparent: str
    """The span of this attempt, in the form of W3C Trace Context: the parent for the spans of the worker. Left out when
    the server exports no span of the attempt; then `$trace` in the params, if it is there, says where the creation was.
    """


class ConfigurationLoad(TypedDict):
    """Where the configuration comes from, what is in force, and what is wrong."""

    counting_since: Time
    """When this server began to count."""
    descriptors: int
    """How many descriptors, at all levels."""
    domains: int
    """How many domains it has."""
    files: int
    """How many files or resources it has."""
    limits: int
    """How many limits."""
    loaded_at: Time | None
    """When the configuration that is in force was loaded; null before there is one."""
    place: str
    """The folder, or the address of the management server."""
    refused: RefusedLoad | None
    """The latest load, when it was refused: the configuration that is in force is an older one. Null when nothing is
    wrong.
    """
    source: str
    """The kind of place that it comes from. One of `built_in`, `files`, `management_server`. More words may be added.
    """
    unreadable: list[ConfigurationMistake]
    """Files and folders that could not be read. Their last texts stay in use."""


class _ConfigurationMistakeRequired(TypedDict):
    file: str
    """The path of the file, or the resource; empty when it is about all of them."""
    text: str
    """Explanation of the mistake."""


class ConfigurationMistake(_ConfigurationMistakeRequired, total=False):
    """A mistake in the configuration, and where it is."""

    column: int
    """In characters. Left out when there is none."""
    hint: str
    """How to correct it. Left out when that is not known."""
    line: int
    """Left out when there is none."""
    path: str
    """The path to the value, such as `descriptors[0].rate_limit.unit`. Left out when it is about all of the file."""


class _ConfiguredDescriptorRequired(TypedDict):
    children: int
    """How many descriptors are right below it."""
    file: str
    """The path of the file, or the resource, that it is written in."""
    key: str
    limits_below: int
    """How many limits are below it."""
    value: str
    """The value, in which a `*` stands for any text; empty when it is for all values without a descriptor of their own.
    """


class ConfiguredDescriptor(_ConfiguredDescriptorRequired, total=False):
    """A descriptor of the configuration."""

    cut: bool
    """True when the key or the value is too long to be shown as a whole. Left out when they are not."""
    descriptors: list[ConfiguredDescriptor]
    """The descriptors below it. Left out when there are none, or too many for this answer: ask for this descriptor."""
    limit: ConfiguredLimit
    """Its limit. Left out when it has none."""
    line: int
    """Its line there. Left out when it has none."""
    share_threshold: bool
    """All values that match share one counter. Left out when they do not."""
    value_to_metric: bool
    """Statistics have the value of the request in their name. Left out when they have not."""


class _ConfiguredDomainRequired(TypedDict):
    children: int
    """How many descriptors are at its top."""
    files: list[str]
    """The paths of the files, or the resources, that it is written in, at most ten."""
    limits: int
    """How many limits it has."""
    name: str


class ConfiguredDomain(_ConfiguredDomainRequired, total=False):
    """A domain of the configuration."""

    cut: bool
    """True when the name is too long to be shown as a whole. Left out when it is not."""
    descriptors: list[ConfiguredDescriptor]
    """The descriptors at its top, with all below them. Left out when they are too many for this answer: ask for the
    domain.
    """


class _ConfiguredLimitRequired(TypedDict):
    detailed_metric: bool
    """Statistics have the keys and values of the request in their name."""
    has_metadata: bool
    """Whether answers to requests carry metadata of it."""
    name: str
    """Its name; empty when it has none."""
    pause_when_throttled: bool
    """Whether a service that throttles its jobs keeps its requests waiting, too."""
    quota_mode: bool
    """It refuses only when all such limits of a request are exceeded."""
    replaces: list[str]
    """The names of limits that it replaces, at most ten."""
    requests_per_unit: int | None
    """Hits allowed in each window; null when it is unlimited."""
    rule: str
    """Its path in the configuration, by which overrides and statistics name it."""
    shadow_mode: bool
    """It counts, and refuses nothing."""
    unit: str | None
    """The length of a window, such as `minute`; null when it is unlimited."""


class ConfiguredLimit(_ConfiguredLimitRequired, total=False):
    """A limit of the configuration, and what was counted of it."""

    now: ConfiguredLimitRates
    """Rates of about the last minute at this server. Left out for the first second of a configuration, and for limits
    after the first 4,096.
    """
    overrides: list[LimitOverride]
    """Overrides that pause, throttle or scale it or a key of it, at most five. Left out when there are none."""
    usage: ConfiguredLimitUsage
    """How much of it is used. Left out when no key is known: of a limit for many keys, none had hits in the last one to
    two minutes. Left out, too, when the 64 keys that an answer reads are of other limits, or when the store does not
    answer.
    """
    use: ConfiguredLimitUse
    """Hits of requests and jobs at this server. Left out when it is unlimited: then nothing is counted."""


class ConfiguredLimitRates(TypedDict):
    """Rates of a limit in about the last minute, or since it is known."""

    hits_per_second: float
    refused_per_second: float
    """Hits of them that were refused. Those over a limit in shadow mode were not."""
    refused_share: float
    """The share of the hits that was refused, from 0 to 1."""
    window_ms: int
    """The time that the rates are of."""


class ConfiguredLimitUsage(TypedDict):
    """How much of a limit is used."""

    entries: list[list[str]]
    """That key: pairs of a key and a value."""
    full: int
    """How many of these have used all of it."""
    is_estimate: bool
    """Whether there were too many decisions or keys to count all: then `values` may be too low, and another key may be
    busier.
    """
    near: int
    """How many are near its end, and not full."""
    of: int
    """Hits that the limit allows in each window, with its overrides."""
    read: int
    """How many keys were read, those with the most hits. An answer reads 64 in all."""
    resets_at: Time
    """When the window ends."""
    used: int
    """Hits that are counted for the busiest of the keys that were read. With hits that were refused, they may be more
    than the limit allows.
    """
    values: int
    """How many keys of the limit had hits in the last one to two minutes at this server."""


class ConfiguredLimitUse(TypedDict):
    """Hits since the server started, or since it has the limit."""

    hits: int
    """All of them. Of a call whose store failed, it is not known how they ended."""
    near_limit: int
    """Those of them near its end."""
    over_limit: int
    """Those over the limit."""
    shadow_mode: int
    """Those of them that were let through, because the limit is in shadow mode."""
    within_limit: int
    """Those within the limit."""


class _CreatedRequired(TypedDict):
    existing: bool
    """Whether it was created before, with the same idempotency key."""
    id: WorkflowId
    name: str
    status: Status


class Created(_CreatedRequired, total=False):
    """A workflow that was created, now or before."""

    warnings: list[CreationWarning]
    """Parts of it that have no effect, at most eight; left out if there are none."""


class CreationWarning(TypedDict):
    """A part of a workflow that has no effect. The workflow is created all the same."""

    code: str
    """One of `no_rate_limit`. More words may be added."""
    domain: str
    """The domain of a rate limit."""
    job: str
    """The first job with such a limit."""
    text: str
    """A sentence for people."""


class _DefinitionRequired(TypedDict):
    jobs: list[JobDefinition]
    name: str
    """Name of workflows of this kind."""


class Definition(_DefinitionRequired, total=False):
    """A workflow to create."""

    globals: Params | None
    """Every job gets these, too; its own `params` win."""
    idempotency_key: str | None
    """Creating again with this key returns the first workflow. The header Idempotency-Key does the same."""
    on_failure: OnFailure | None
    """Effect of the failure of one job on the others; `continue` if left out."""
    retention: Retention | None
    """How long it is kept after its end; if left out, the server decides."""
    start: Start | None
    """When it starts; `now` if left out."""
    tags: list[str] | None
    """Words to find it by."""


class Done(TypedDict):
    """The workflow to which something was done."""

    already: bool
    """Whether there was nothing left to do: it was so already."""
    id: WorkflowId
    status: Status
    """State of the workflow now."""


class DrainEvent(TypedDict):
    """Whether the worker is to take no more jobs. It comes first, and whenever it changes."""

    drain: bool


class ErrorSummary(TypedDict):
    """Kind of an error and the start of its message."""

    kind: str
    message: str
    """Cut to 200 characters."""


class Expire(TypedDict):
    """How long to keep a workflow."""

    after: Retention
    """How long after its end, or from now on when it has ended."""


class _ExtendRequired(TypedDict):
    leases: list[str]


class Extend(_ExtendRequired, total=False):
    """Leases to keep for longer."""

    lease: Span | None
    """How long from now on: 5s to 1h, 30s if left out."""
    notes: list[Note] | None
    """Notes to store about jobs, of these leases or of others."""
    stopping: bool | None
    """The worker stops: a lease that ends without its report counts as returned, and not as lost. False if left out."""
    uptime: Span | None
    """How long the worker has run, as in its claims."""
    worker: str | None
    """Name of the worker, as in its claims: then the answer says whether it should drain."""


class _ExtendResultRequired(TypedDict):
    leases: list[LeaseItem]


class ExtendResult(_ExtendResultRequired, total=False):
    """Result of each lease, in the order of the request."""

    drain: bool
    """The worker should drain: it gets no more jobs. Left out otherwise."""
    notes: list[NoteItem]
    """Result of each note. Left out without notes."""


class FailureGroup(TypedDict):
    """Failures of one handler with one kind of error."""

    first_at: Time
    handler: str
    jobs: int
    """How many jobs failed so in the range."""
    kind: str | None
    """Null when the errors are lost."""
    last_at: Time
    message: str | None
    """The message of the latest error, cut to 200 characters; null when it is lost."""
    points: list[int]
    """Numbers of failures in steps of the range, the oldest first."""
    sample: FailureSample
    workflows: int
    """How many workflows these jobs are of."""


class FailureSample(TypedDict):
    """The latest failure of a group."""

    job: str
    """The name of the job."""
    name: str
    """The name of the workflow."""
    workflow: WorkflowId


class _FailuresRequired(TypedDict):
    groups: int
    """How many groups there are."""
    items: list[FailureGroup]
    """The groups, those with the latest failures first; at most 50."""
    more: bool
    """Whether there are more failed workflows."""
    step_ms: int
    """The time between two numbers of `points`, in milliseconds."""
    unread: int
    """How many of those that were looked at are too large to read here: they are in no group."""
    unread_jobs: int
    """How many failed jobs are in no group, because their workflow has more than 1,000 of them."""
    until: Time
    """The end of the range."""
    workflows: int
    """How many failed workflows were looked at, those that were created last; at most 1,000."""


class Failures(_FailuresRequired, total=False):
    """Failed jobs by handler and kind of error."""

    incomplete: Incomplete
    """Data that is missing, when a part of the store does not answer. Left out when nothing is."""


class FirstError(TypedDict):
    """A failed job and its last error."""

    job: str
    """Name of the job."""
    kind: str | None
    """Null when the error is lost."""
    message: str | None
    """Cut to 200 characters. Null when the error is lost."""


class _FoundDescriptorRequired(TypedDict):
    descriptor: ConfiguredDescriptor
    domain: str
    entries: list[list[str]]
    """Keys and values from the top of the domain to this one."""


class FoundDescriptor(_FoundDescriptorRequired, total=False):
    """A descriptor that was searched for, with the way to it."""

    way_cut: bool
    """True when the domain or the way is too long to be shown as a whole. Left out when they are not."""


class _FullLimitRequired(TypedDict):
    index: int
    """Its place among the limits, from 0."""
    until: Time
    """For a rate limit: until then at least. For a limit of concurrency: until then at the latest, when no lease is
    extended.
    """


class FullLimit(_FullLimitRequired, total=False):
    """A limit that has no room."""

    paused: LimitOverride
    """The override that pauses it. Left out when it is not paused."""


class GraphLayout(TypedDict):
    """Where a graph is drawn, in pixels from the upper left corner."""

    blocks: list[LayoutBlock]
    """Frames around many jobs with the same jobs before them and after them. Lines lead to the frame."""
    edges: LayoutEdges
    height: int
    id: WorkflowId
    junctions: list[Point]
    """Where lines meet that many jobs have in common."""
    nodes: list[LayoutNode]
    """One box for each job, in the order of the definition."""
    status: Status
    undrawn: int
    """Lines that are left out: beyond 40,000, jobs have lines from the nearest jobs before them only."""
    width: int


class _HolderRequired(TypedDict):
    index: int
    """Its place in the definition of that workflow, from 0."""
    until: Time
    """When its place is free, unless its lease is extended."""
    workflow: str


class Holder(_HolderRequired, total=False):
    """A job that runs under a limit."""

    job: str
    """Its name; left out when the jobs are of many workflows."""


class Incomplete(TypedDict):
    """Data that this answer lacks, because a part of the store does not answer."""

    partitions: list[int]
    """The partitions of which nothing is in this answer. Empty when that is not known."""
    reason: str
    """Why, in the words of the store."""


class InputError(TypedDict):
    """Why a job before this one failed."""

    kind: str
    message: str


class _JobRequired(TypedDict):
    after: list[str]
    """Names of the jobs that it runs after."""
    attempt: int
    """Attempts so far, the running one included."""
    before: list[str]
    """Names of the jobs that run after it."""
    blocked: bool
    """Whether it cannot run because a job before it has failed, and all jobs before it have ended."""
    due_at: Time | None
    """When it becomes ready, while it is scheduled."""
    finished_at: Time | None
    handler: str
    index: int
    """Its place in the definition, from 0."""
    lease_expires_at: Time | None
    """When its lease ends, while it is running."""
    lost: int
    """Leases in a row that ended without a report."""
    lost_total: int
    """All attempts whose lease was lost or whose process died."""
    max_lost: int
    """How many of them are tried again: one more fails the job."""
    name: str
    priority: int
    queue: str
    ready_at: Time | None
    retries: int
    rule: RuleShown
    started_at: Time | None
    state: JobState
    suspect: bool
    """Whether it runs alone in a new process next, or does now: two attempts in a row were lost, or their process died.
    """
    timeout_ms: int | None
    wait_ms: int
    why_not_running: WhyNotRunning | None
    worker: str | None
    """Worker that runs it, or ran it last."""


class Job(_JobRequired, total=False):
    """A job. `params`, `output` and `errors` are there when it is shown alone, and with `view=full`."""

    error: ErrorSummary
    """Its last error, if it has failed. Only pages of jobs have it."""
    errors: list[AttemptError]
    """The latest ten errors, the oldest first."""
    limits: list[Limit]
    """Limits of the job; left out when there are none."""
    output: Any
    """Output of the job; null when it returned nothing."""
    params: dict[str, Any]
    progress: JobProgress
    """How far it is, as its worker said last. Left out when no worker did, and where only `view=full` or the job alone
    has it.
    """


class _JobCountsRequired(TypedDict):
    cancelled: int
    failed: int
    ready: int
    running: int
    scheduled: int
    skipped: int
    succeeded: int
    total: int
    waiting: int
    """Those that are blocked are among them."""


class JobCounts(_JobCountsRequired, total=False):
    """Jobs by what they are doing."""

    blocked: int
    """Those of the waiting that cannot run because of a failure. Lists leave it out while the workflow is not over."""


class _JobDefinitionRequired(TypedDict):
    handler: str
    """Name of the handler that a worker runs."""


class JobDefinition(_JobDefinitionRequired, total=False):
    """A job of a workflow."""

    after: Names | None
    """Names of jobs that it runs after."""
    backoff: Span | None
    """The pause before the first retry; it doubles each time, up to `backoff_max`. 1s if left out."""
    backoff_max: Span | None
    """The longest pause before a retry, not less than `backoff`; 1h, or `backoff` if that is longer, if left out."""
    before: Names | None
    """Names of jobs that run after it."""
    limits: list[LimitDefinition] | None
    """Limits that must all admit the job before it runs."""
    max_lost: int | None
    """How many leases in a row may be lost, as when workers die, before it has failed; 3 if left out."""
    name: str | None
    """Unique in the workflow; the handler if left out."""
    params: Params | None
    """Params of the handler, together with the workflow's globals: at most 256 KiB of both."""
    priority: int | None
    """Higher first; among equals, the oldest first, to within about two seconds. 0 if left out."""
    queue: str | None
    """The queue that workers take it from; `default` if left out."""
    retries: int | None
    """How often it runs again after a failure; 0 if left out."""
    rule: Rule | None
    """Which outcomes of the jobs before it let it run; `all_success` if left out."""
    timeout: Span | None
    """An attempt that takes longer has failed; more than 0."""
    wait: Span | None
    """The pause after the jobs before it are done; none if left out."""


class JobEvent(TypedDict):
    """A job of the workflow is doing something else."""

    index: int
    name: str
    state: JobState


class _JobInputRequired(TypedDict):
    handler: str
    job: str
    output: Any
    """Output of the job; null when it returned nothing."""


class JobInput(_JobInputRequired, total=False):
    """Result of a job before this one."""

    error: InputError
    """Why its latest attempt failed, when it failed."""
    state: str
    """State of the job, or `doomed` or `blocked` when it cannot run because of a failure before it. Left out with the
    rule `all_success`.
    """


class JobPage(TypedDict):
    """A page of jobs."""

    items: list[Job]
    next_cursor: str | None
    """The cursor of the next page; null when this is the last."""


class JobProgress(TypedDict):
    """How far a job is."""

    at: Time
    """When the worker said so."""
    attempt: int
    """The attempt that it was. A later one may have said nothing yet."""
    percent: int
    """From 0 to 100."""
    text: str


class LayoutBlock(TypedDict):
    """A frame around jobs, which are given by their index."""

    height: int
    jobs: list[int]
    layer: int
    width: int
    x: int
    y: int


class LayoutEdges(TypedDict):
    """All lines, in lists of numbers: there may be tens of thousands of them."""

    ends: list[int]
    """Two numbers for each line: where it begins and where it ends. Nodes are counted first, then blocks, then
    junctions: with 10 nodes, 10 is the first block.
    """
    lengths: list[int]
    """The number of points of each line."""
    points: list[int]
    """Two numbers, x and y, for each point of the first line, then of the second, and so on."""


class LayoutNode(TypedDict):
    """A box."""

    blocked: bool
    """Whether it cannot run because a job before it has failed."""
    handler: str
    height: int
    index: int
    layer: int
    name: str
    state: JobState
    width: int
    x: int
    y: int


class _LeaseItemRequired(TypedDict):
    status: int
    """The status that a single call would have got."""


class LeaseItem(_LeaseItemRequired, total=False):
    """Result of one lease: `lease_expires_at`, or `error`."""

    error: Problem
    lease_expires_at: Time


class LeaseLostEvent(TypedDict):
    """A lease of the worker is over before it has reported: it should stop the work."""

    lease: str
    reason: str
    """As in a problem with `lease_lost`."""
    workflow_id: WorkflowId


class _LimitRequired(TypedDict):
    entries: list[list[str]]
    """Pairs of a key and a value."""


class Limit(_LimitRequired, total=False):
    """A limit: with `domain` and `hits` units of a rate limit, with `concurrency` and `of` a bound of jobs that run at
    the same time.
    """

    concurrency: int
    """How many jobs may run at the same time."""
    domain: str
    hits: int
    """How many units each attempt takes."""
    of: str
    """Among which jobs. One of `workflow`, `queue`, `all`. More words may be added."""


class LimitAnswer(TypedDict):
    """Decision that the request would get now. Nothing was charged."""

    code: str
    """The answer to the request as a whole. One of `ok`, `over_limit`. More words may be added."""
    descriptors: list[LimitStatus]
    """One for each descriptor, in their order."""


class _LimitCheckRequired(TypedDict):
    descriptors: list[LimitDescriptor]
    domain: str
    """The domain of the configuration of rate limits."""


class LimitCheck(_LimitCheckRequired, total=False):
    """A question about rate limits, as `/json` takes it."""

    hits_addend: int | None
    """Hits for each descriptor that has none of its own; 1 if left out."""


class _LimitConfigurationRequired(TypedDict):
    counted_at: Time
    """When hits were read: two answers give rates."""
    next_cursor: str | None
    """The cursor of the next page; null when this is the last. Of a search, there may be a next page after one that is
    not full, or empty.
    """
    version: int
    """How many configurations this server has put in force since it started, with this one; 0 before there is one."""


class LimitConfiguration(_LimitConfigurationRequired, total=False):
    """One level of the configuration."""

    descriptors: list[ConfiguredDescriptor]
    """The descriptors of the level that was asked for, in the order of the files."""
    domains: list[ConfiguredDomain]
    """The domains in the order of the files. Left out when one was asked for."""
    found: list[FoundDescriptor]
    """The descriptors that were searched for, in the order of the files."""
    load: ConfigurationLoad
    """Where the configuration comes from, and what is wrong. Left out when a domain was asked for."""


class LimitDefinition(TypedDict, total=False):
    """Limit that must admit a job before it runs: with `domain`, units of a rate limit, which requests through the
    gateway use, too; with `concurrency`, a place among the jobs that run at the same time.
    """

    concurrency: int | None
    """How many jobs may run at the same time."""
    domain: str | None
    """The domain of the configuration of rate limits."""
    entries: list[list[str]] | None
    """Pairs of a key and a value: with `domain` at least one, which are its descriptor; with `concurrency`, jobs with
    other entries are counted apart. A value that begins with `$.` is taken from the params of the job or from the
    globals when the workflow is created.
    """
    hits: int | None
    """How many units each attempt takes; 1 if left out."""
    of: Scope | None
    """With `concurrency`: among which jobs."""


class _LimitDescriptorRequired(TypedDict):
    entries: list[LimitEntry]


class LimitDescriptor(_LimitDescriptorRequired, total=False):
    """Descriptor that a limit may match."""

    hits_addend: int | None
    """Hits of this descriptor."""


class _LimitEntryRequired(TypedDict):
    key: str


class LimitEntry(_LimitEntryRequired, total=False):
    """A key and a value."""

    value: str
    """Empty if left out."""


class _LimitOverrideRequired(TypedDict):
    at: Time
    """When it was decided."""
    by: str
    """Name of the token of its author; `anonymous` where no token is needed."""
    effect: str
    """Effect of the override. `throttled`: the service behind the limit asked for the pause. One of `paused`,
    `throttled`, `scaled`. More words may be added.
    """
    gateway: bool
    """Whether it is also for requests; if not, only for jobs."""
    reason: str
    """Why."""
    until: Time | None
    """When it ends; null when it holds until it is removed."""


class LimitOverride(_LimitOverrideRequired, total=False):
    """A limit or a key that is paused, throttled or scaled."""

    domain: str
    """The domain, when it is about one key."""
    entries: list[list[str]]
    """The pairs of a key and a value, when it is about one key."""
    rule: str
    """The limit, when it is about all of its keys."""
    scale: float
    """By what the hits are multiplied that a scaled limit allows."""


class LimitRefusal(TypedDict):
    """A request that was refused, or jobs that had to wait."""

    at: Time
    caller: str
    """Caller that was refused. One of `request`, `job`. More words may be added."""
    domain: str
    entries: list[list[str]]
    """Pairs of a key and a value. What is long is cut."""


class LimitSeries(TypedDict):
    """Rates of a limit, the oldest first. Null where they are not known."""

    hits: list[float | None]
    """Hits a second."""
    near: list[float | None]
    """Hits a second within the limit and near its end."""
    refused: list[float | None]
    """Hits a second that were refused. Those over a limit in shadow mode were not."""
    rule: str


class LimitSeriesList(TypedDict):
    """Rates of limits at this server in equal steps. All steps are over."""

    items: list[LimitSeries]
    """The limits that are known, in the order of the query. The first 512 of the configuration are."""
    step_ms: int
    """The time between two numbers of a series, in milliseconds."""
    until: Time
    """The end of the last step."""


class LimitStatusExplained(TypedDict, total=False):
    """Why a descriptor has its answer. A field is left out where there is none, and after the first 64 descriptors."""

    file: str
    """The path of the file, or the resource, that it is written in."""
    hint: str
    """Why it has no limit, and what may be meant. Of the first 8 descriptors without one."""
    line: int
    """Its line there."""
    paused: LimitOverride
    """The override that pauses it: requests, when `gateway` is true, or else only jobs."""
    rule: str
    """The path of its limit in the configuration, also of an unlimited one."""
    used: int
    """Hits that its window has counted so far. With hits that were refused, they may be more than the limit allows."""


class LimitsDefinition(TypedDict):
    """Limits that each job of a queue or a handler gets in front of its own."""

    limits: list[LimitDefinition]


class LimitsOf(TypedDict):
    """The limits of a queue or a handler."""

    limits: list[Limit]
    name: str
    """The queue or the handler."""


class LogItem(TypedDict):
    """A line of a log."""

    at: Time
    """When it arrived."""
    attempt: int
    """The attempt of the job that it is of, from 1."""
    text: str
    """Text of the worker. It may have any characters."""


class LogPage(TypedDict):
    """Lines of a log, the oldest first."""

    dropped: int
    """How many lines there were before these that are not kept any more: at most 64 KiB of a log are."""
    items: list[LogItem]
    next: str
    """Send it as `after` to get what follows."""


class MarkSucceeded(TypedDict, total=False):
    """Output that a job counts as having returned."""

    output: Any
    """Any JSON of at most 1 MiB."""


class _NoteRequired(TypedDict):
    lease: str
    """The lease that the claim gave."""


class Note(_NoteRequired, total=False):
    """Note of a worker about a job that it has: progress, lines for its log, or both."""

    log: list[str] | None
    """Lines for its log: at most 256, and 16 KiB together."""
    progress: ProgressNote | None
    """How far it is. It takes the place of what was said before."""


class _NoteItemRequired(TypedDict):
    status: int
    """The status that a single call would have got."""


class NoteItem(_NoteItemRequired, total=False):
    """Result of one note."""

    error: Problem


_OverrideDefinitionMoreWords = TypedDict("_OverrideDefinitionMoreWords", {"for": "Span | None"}, total=False)


class OverrideDefinition(_OverrideDefinitionMoreWords, total=False):
    """A limit or a key to pause or to scale."""

    domain: str | None
    """For one key: the domain of the configuration of rate limits."""
    entries: list[list[str]] | None
    """For one key: pairs of a key and a value, as requests and jobs name them."""
    gateway: bool | None
    """With `pause`: whether requests are refused, too; if not, only jobs wait."""
    pause: bool | None
    """True to let nothing pass."""
    reason: str | None
    """Why, for those who see it."""
    rule: str | None
    """For all keys of a limit: its path in the configuration, such as `vendor.tenant`, as it is in the names of
    metrics.
    """
    scale: float | None
    """By what the hits that the limit allows are multiplied."""


class OverrideList(TypedDict):
    """All overrides, sorted by what they are about."""

    items: list[LimitOverride]
    unreadable: int
    """How many more there are that a later version wrote. They have no effect at this server."""


class Overview(TypedDict):
    """The last hour or another range at this server, and what there is now."""

    now: OverviewEvent
    series: dict[str, list[float | None]]
    """Numbers by name, the oldest first, at most 360 and all of complete steps: rates a second of `calls`,
    `decisions_ok`, `decisions_near_limit`, `decisions_over_limit`, `decisions_failed`, `workflows_created`,
    `jobs_started`, `jobs_succeeded`, `jobs_failed`, `jobs_retried`, `leases_lost`; and of calls that ask for decisions
    `decision_p50_ms` and `decision_p99_ms`, which are right within an eighth. In a range of 24 hours, a number may
    stand for several minutes: it is their mean, or the highest of their percentiles. `jobs_running` and `jobs_ready`
    (of workflows that have not ended), `workflows_failed` and `workflows_running` are numbers of the store, known while
    a client reads them. Null where nothing is known. Decisions are hits of limits. More names may be added.
    """
    step_ms: int
    """The time between two numbers of a series, in milliseconds."""
    until: Time
    """The time of the last number of each series."""


class OverviewEvent(TypedDict):
    """Sample of the last second or a little more."""

    home_partitions: int
    """Partitions of the store whose home is this server."""
    jobs: dict[str, int]
    """Jobs by state, of workflows that have not ended."""
    until: Time
    values: dict[str, float | None]
    """A number for each name of the series."""
    workflows: dict[str, int]
    """Workflows of the store by status; empty until they were counted, which is done every few seconds while a client
    reads them.
    """


class PartitionTrouble(TypedDict):
    """Failure in some partitions."""

    partitions: list[int]
    """Their numbers."""
    reads: bool
    """Whether what is there can be read."""
    reason: str
    """In the words of the store."""
    writes: bool
    """Whether what workflows need can be written. What has expired may be removed all the same."""


class _PausedByRequired(TypedDict):
    by: str
    reason: str


class PausedBy(_PausedByRequired, total=False):
    """Author of the pause of a limit."""

    until: Time
    """When it ends; left out when it holds until it is removed."""


class _ProblemRequired(TypedDict):
    code: str
    """A stable word for what is wrong. One of `workflow_not_found`, `job_not_found`, `queue_not_found`,
    `override_not_found`, `descriptor_not_found`, `already_started`, `state_conflict`, `lease_lost`,
    `idempotency_mismatch`, `migration_needed`, `too_many_overrides`, `invalid_json`, `invalid_field`, `graph_cycle`,
    `unknown_dependency`, `duplicate_job_name`, `invalid_definition`, `invalid_cursor`, `payload_too_large`,
    `request_timeout`, `unauthorized`, `forbidden`, `overloaded`, `store_unavailable`, `no_configuration`,
    `shutting_down`, `not_found`, `method_not_allowed`, `internal`. More words may be added.
    """
    detail: str
    """Explanation of this occurrence of the problem."""
    request_id: str
    """The id of the request, as in the header X-Request-Id."""
    status: int
    """The HTTP status."""
    title: str
    """Meaning of the code."""
    type: str
    """A URN that ends with the code."""


class Problem(_ProblemRequired, total=False):
    """Problem of a request, in the form of RFC 9457. Programs can rely on `code`."""

    cycle: list[str]
    """Names of jobs that wait for each other, each before the next."""
    nothing_done: bool
    """With `store_unavailable`: true when nothing was done. Else the request may have been carried out."""
    path: str
    """Where in the request it is, such as `jobs[3].after[0]`."""
    reason: str
    """With `lease_lost`: why. One of `expired`, `timed_out`, `cancelled`, `ended_by_hand`, `restarted`, `taken_over`,
    `reported`, `unknown`. More words may be added.
    """
    retry_after: int
    """Seconds after which it may be tried again."""
    workflow_id: WorkflowId
    """The workflow that the idempotency key belongs to."""


class _ProgressNoteRequired(TypedDict):
    percent: int


class ProgressNote(_ProgressNoteRequired, total=False):
    """How far a job is."""

    text: str | None
    """A word for people: at most 256 bytes."""


class Queue(TypedDict):
    """A queue."""

    name: str
    oldest_ready_at: Time | None
    """Since when the oldest of them has waited; null when there are none."""
    paused: bool
    """Whether it hands out no jobs."""
    ready: int
    """Jobs that wait for a worker."""
    waiting_workers: int
    """Workers that wait for its jobs at this server."""


class _QueuePageRequired(TypedDict):
    items: list[Queue]
    next_cursor: str | None
    """The cursor of the next page; null when this is the last."""


class QueuePage(_QueuePageRequired, total=False):
    """A page of queues, by name."""

    incomplete: Incomplete
    """Data that is missing, when a part of the store does not answer. Left out when nothing is."""


class QueuePaused(TypedDict):
    """A queue that was paused or resumed."""

    name: str
    paused: bool


class Rate(TypedDict):
    """How much a limit allows."""

    name: str
    """Its name in the configuration; empty when it has none."""
    requests_per_unit: int
    """Hits allowed in each window."""
    unit: str
    """The length of a window, such as `minute`."""


class RefusedConfiguration(TypedDict):
    """A refused configuration in short. `GET /v1/limits/configuration` has all mistakes."""

    at: Time
    file: str
    """The path of the file, or the resource, with the first mistake; empty when it is about all of them."""
    line: int | None
    """The line of the first mistake; null when there is none."""
    mistakes: int
    """How many mistakes it has."""
    text: str
    """Explanation of the first mistake."""


class _RefusedKeyRequired(TypedDict):
    caller: str
    """One of `request`, `job`. More words may be added."""
    count: int
    """Hits of requests that were refused, or how often jobs had to wait."""
    domain: str
    entries: list[list[str]]
    """Pairs of a key and a value. What is long is cut."""
    first_at: Time
    """When it was refused first in the range, right within a minute, or within an hour in a range of 24 hours."""
    is_estimate: bool
    """Whether there were too many decisions or keys to count all."""
    last_at: Time
    points: list[int]
    """Refusals in each step, the oldest first; at most 24."""
    share: float | None
    """The share of the hits of the key that were refused, from 0 to 1, since its first refusal. Null for jobs."""


class RefusedKey(_RefusedKeyRequired, total=False):
    """A key that was refused to requests, or for which jobs had to wait."""

    file: str
    """The path of the file, or the resource, that the limit is written in."""
    line: int
    """Its line there."""
    rule: str
    """The path of its limit in the configuration. Left out when the configuration has none, or the key was cut."""


class RefusedKeys(TypedDict):
    """Keys that were refused at this server, those with the most refusals first."""

    is_complete: bool
    """Whether all keys are known that were refused since the server started. It keeps 512."""
    items: list[RefusedKey]
    keys: int
    """How many keys were refused. An answer has at most 64 of them."""
    step_ms: int
    """The time between two numbers of `points`, in milliseconds."""
    until: Time
    """The end of the last step, which may be in the future: that step is not over."""


class RefusedLoad(TypedDict):
    """A load that was refused. The configuration before it stays in force."""

    at: Time
    mistakes: list[ConfigurationMistake]
    """The first mistakes, by file and line."""
    more: int
    """How many others there are."""


class RemovedEvent(TypedDict):
    """The workflow was removed: this is the last event."""

    id: WorkflowId


class _ReportRequired(TypedDict):
    lease: str
    """The lease that the claim gave."""
    outcome: Outcome


class Report(_ReportRequired, total=False):
    """How an attempt ended."""

    alone: bool | None
    """With `crashed`: whether the process ran no other job; false if left out."""
    error: ReportError | None
    """With `failed`, and then required."""
    exit: int | None
    """With `crashed`, this or `signal`: the code with which the process ended."""
    output: Any
    """With `succeeded`: any JSON of at most 1 MiB."""
    pause: Span | None
    """With `given_back`: the time for which no worker should get it."""
    retry: RetryWish | None
    """With `failed`: whether another attempt may follow; `policy` if left out."""
    retry_after: Span | None
    """With `failed`: the pause before the next attempt. With `throttled`, and then required: for how long no job is
    handed out that has the same rate limits.
    """
    signal: int | None
    """With `crashed`, this or `exit`: the signal that ended the process."""


class _ReportErrorRequired(TypedDict):
    kind: str
    """Such as the class of the error; cut to 200 bytes."""
    message: str
    """Cut to 16 KiB."""


class ReportError(_ReportErrorRequired, total=False):
    """Error of a failed attempt."""

    trace: str | None
    """Cut to 16 KiB."""


class _ReportItemRequired(TypedDict):
    status: int
    """The status that a single call would have got."""


class ReportItem(_ReportItemRequired, total=False):
    """Result of one report: `job_state`, `workflow_status` and `already`, or `error`."""

    already: bool
    """Whether the same report came before."""
    error: Problem
    job_state: JobState
    """State of the job now."""
    workflow_status: Status


class _ReportRequestRequired(TypedDict):
    reports: list[Report]


class ReportRequest(_ReportRequestRequired, total=False):
    """Reports, and what to take next."""

    claim: Claim | None
    """Jobs to take in the same call. It waits only when the reports make no job ready."""
    notes: list[Note] | None
    """Notes to store about jobs, of those that are reported or of others."""


class _ReportResultRequired(TypedDict):
    jobs: list[ClaimedJob]
    """Jobs that were claimed in the same call."""
    reports: list[ReportItem]


class ReportResult(_ReportResultRequired, total=False):
    """Result of each report, in the order of the request, and jobs."""

    claim_error: Problem
    """Why no job could be claimed. The reports were taken all the same."""
    drain: bool
    """The worker of the claim should drain: it gets no more jobs. Left out otherwise."""
    notes: list[NoteItem]
    """Result of each note. Left out without notes."""


class _RestartRequired(TypedDict):
    jobs: list[str]
    """Names of jobs that have ended."""


class Restart(_RestartRequired, total=False):
    """Jobs to run again."""

    as_of: str | None
    """Only jobs that ended by then; those that ended later have run again since. With it, the call can be sent twice.
    """
    cascade: bool | None
    """Whether the jobs after them run again, too."""


class Retry(TypedDict, total=False):
    """Which jobs to retry."""

    as_of: str | None
    """Only jobs that ended by then; those that ended later have run again since. With it, the call can be sent twice.
    """


class _SearchResultRequired(TypedDict):
    kind: SearchKind
    name: str
    """Its name. Of a limit: its keys and values."""


class SearchResult(_SearchResultRequired, total=False):
    """Something that has the text."""

    domain: str
    """The domain of a limit. Left out of others."""
    entries: list[list[str]]
    """The keys of a limit with their values; an empty value stands for any. Left out of others, and when they are too
    long to show.
    """
    id: WorkflowId
    """The id of a workflow. Left out of others."""
    path: str
    """The path of a limit in the configuration. Left out of others."""
    status: str
    """The status of a workflow. Left out of others."""


class _SearchResultsRequired(TypedDict):
    items: list[SearchResult]
    """At most 20, and at most eight of a kind."""
    more: bool
    """Whether there are more, or may be."""


class SearchResults(_SearchResultsRequired, total=False):
    """Results with the text, the best first."""

    incomplete: Incomplete
    """Data that is missing, when the store or a part of it does not answer. Left out when nothing is."""


class Server(TypedDict):
    """A server that uses the same store."""

    address: str
    """Where its API listens, in its own words."""
    answers: bool
    """Whether it is the one that answers."""
    began_at: Time
    heard_at: Time
    """When it last said that it lives; each does so every two seconds."""
    home_partitions: list[int]
    """The partitions that are assigned to that server: it runs their timers, and takes their jobs first."""
    id: str
    """Its name until it ends."""
    version: str


class ServerStatus(TypedDict):
    """Status of rate limits and workflows."""

    drains_until: Time | None
    """The latest time at which it accepts calls; null unless it is `draining`. It may end earlier, at a second signal.
    """
    limits: Works
    """Whether calls of rate limits are answered. `no` when `/healthcheck` of the HTTP port says so, and when the store
    of counters failed the latest calls, within the last minute; `partly` when it failed some in the last 10 s. Without
    calls, the status is `yes`.
    """
    refused_configuration: RefusedConfiguration | None
    """The latest load of the configuration of rate limits, when it was refused: that of before is in force. Null when
    nothing is wrong.
    """
    started_at: Time
    state: ServerState
    store: ServerStores
    version: str
    """The version of the server, as in `/v1/version`."""
    workflows: WorkflowStatus


class ServerStores(TypedDict):
    """Where the server keeps its state, without credentials."""

    counters: str
    """Where the counters of rate limits are, such as `redis at 10.0.0.7:6379`."""
    workflows: str
    """Where the workflows are."""


class TestClock(TypedDict):
    """The clock."""

    advanced_ms: int
    """How far it was moved, in milliseconds, rounded up."""
    next: Time | None
    """Where `to_next` would move it now; null when nothing waits for a time."""
    now: Time


class _TopKeyRequired(TypedDict):
    domain: str
    entries: list[list[str]]
    """Pairs of a key and a value. What is long is cut."""
    hits: int
    hits_per_second: float
    """Hits a second since the counting began."""
    is_estimate: bool
    """Whether the number of hits is an estimate, because too many decisions or keys came to count all."""


class TopKey(_TopKeyRequired, total=False):
    """A key, and how many hits were asked of it. Hits of jobs are those that were granted."""

    rule: str
    """The path of its limit in the configuration. Left out when the configuration has none, or the key was cut."""


class TopKeys(TypedDict):
    """Keys with the most hits at this server, and its latest refusals."""

    keys: list[TopKey]
    """Keys with a limit, at most 128, those with the most hits first. A key with less than about a hundredth of all
    hits may be missing.
    """
    refusals: list[LimitRefusal]
    """At most 128, the latest first. Of many in one second, some are missing."""
    since: Time
    """When the counting of `hits` began: one to two minutes ago, or when the server started."""
    window_ms: int
    """How long ago that was."""


class Version(TypedDict):
    """Which server this is."""

    api: str
    """The version of the API, as in its paths."""
    version: str
    """The version of the server. What follows its `+` is the revision that it was built of."""


class WaitingKey(TypedDict):
    """Ready jobs of one queue and one handler that have the same limits."""

    full: FullLimit | None
    """The first of the limits that has no room for a job; null when all have."""
    handler: str
    limits: list[LimitInUse]
    oldest_ready_at: Time | None
    """Since when the oldest of them has waited."""
    queue: str
    waiting: int
    """How many they are. Where they have room, they wait for a worker."""


class _WaitingKeyPageRequired(TypedDict):
    items: list[WaitingKey]
    next_cursor: str | None
    """The cursor of the next page; null when this is the last. There may be a next page after one that is not full."""


class WaitingKeyPage(_WaitingKeyPageRequired, total=False):
    """A page of keys that jobs wait under, by queue and handler."""

    incomplete: Incomplete
    """Data that is missing, when a part of the store does not answer. Left out when nothing is."""


class Weight(TypedDict):
    """A weight."""

    entries: list[list[str]]
    """Pairs of a key and a value."""
    weight: int


class WeightDefinition(TypedDict):
    """The weight of jobs of which one limit has all of these entries."""

    entries: list[list[str]]
    """Pairs of a key and a value."""
    weight: int
    """How many of their jobs are handed out for each job of a key without a weight."""


class WeightsDefinition(TypedDict):
    """How the keys of a queue weigh against each other."""

    weights: list[WeightDefinition]


class WeightsOf(TypedDict):
    """The weights of a queue."""

    name: str
    """The queue."""
    weights: list[Weight]


class _WhyNotRunningRequired(TypedDict):
    reason: str
    """One of `not_started`, `workflow_paused`, `waits_for`, `doomed`, `blocked_by`, `until`, `queue_paused`, `limit`,
    `no_worker`, `no_handler`, `in_queue`. More words may be added.
    """
    text: str
    """The reason as a sentence for people."""


class WhyNotRunning(_WhyNotRunningRequired, total=False):
    """Why a job does not run."""

    holders: list[Holder]
    """Which jobs run under that limit, if it is one of jobs that run at the same time: at most 100."""
    jobs: list[str]
    """The jobs that it waits for, or because of which it cannot run."""
    limit: Limit
    """The limit that has no room for it."""
    paused: PausedBy
    """The pause of that limit. Only in the answer for a single job."""
    until: Time
    """Until when it waits."""


class WindowUse(TypedDict):
    """Use of the window of a rate limit."""

    requests_per_unit: int
    """Hits that the limit allows in each window."""
    resets_at: Time
    """When the window ends."""
    unit: str
    """The length of a window, such as `minute`."""
    used: int
    """Hits that are counted: with requests that were refused, more than the limit allows."""


class _WorkerRequired(TypedDict):
    draining_since: Time | None
    """Since when it is to take no more jobs; null when it may take some."""
    handlers: list[str] | None
    """The handlers that it named, at most 20; null when it runs everything."""
    jobs: list[WorkerJob]
    """Jobs that it runs: the ten that it has had for longest."""
    name: str
    queues: list[str]
    """The queues that its latest claim named, at most 20."""
    running: int
    """How many leases it holds, about."""
    seen_at: Time | None
    """When it called last; null when that is not known."""


class Worker(_WorkerRequired, total=False):
    """A worker that has called in the last two minutes, or holds leases, or is to drain; it drains no longer when it
    has done neither for two minutes.
    """

    draining_by: str
    """Name of the token of the caller that set it."""


class WorkerDraining(TypedDict):
    """Whether a worker is to take no more jobs."""

    draining: bool
    name: str


class WorkerJob(TypedDict):
    """A job that a worker runs."""

    handler: str
    job: str
    queue: str
    since: Time
    """When it was claimed."""
    workflow_id: WorkflowId


class WorkerPage(TypedDict):
    """A page of workers, by name."""

    items: list[Worker]
    next_cursor: str | None
    """The cursor of the next page; null when this is the last."""


class _WorkflowRequired(TypedDict):
    created_at: Time
    expires_at: Time | None
    """When it is removed; null while it is not over, and when it is kept for ever."""
    finished_at: Time | None
    id: WorkflowId
    job_counts: JobCounts
    name: str
    started_at: Time | None
    status: Status
    tags: list[str]


class Workflow(_WorkflowRequired, total=False):
    """A workflow. Lists, `view=summary` and events leave out `on_failure` and what follows it."""

    error: FirstError
    """The job that failed first. Only lists of at most 100 have it; left out when none has failed, or when it would
    take too long to find.
    """
    globals: dict[str, Any]
    """Globals of all jobs, which the params of a job override, when there are any."""
    jobs: list[Job]
    keep_forever: bool
    """Whether it is never removed."""
    on_failure: OnFailureShown
    retention_ms: int
    """How long it is kept after its end; left out when the server decides, or when it is kept for ever."""
    running: list[str]
    """Names of jobs that run, at most three. Only lists of at most 100 have it; left out when none runs, or when it
    would take too long to find.
    """


class _WorkflowCountRequired(TypedDict):
    as_of: Time
    """The server's time before it counted. As `created_before` of a filter, it leaves out what is created later."""
    by_status: StatusNumbers
    total: int


class WorkflowCount(_WorkflowCountRequired, total=False):
    """How many workflows there are."""

    by_name: dict[str, StatusNumbers]
    """Numbers by name and status, with `by=name`."""
    incomplete: Incomplete
    """Data that is missing, when a part of the store does not answer. Left out when nothing is."""
    next_cursor: str
    """With `by=name`, the cursor of the next names; with `error` or `handler`, of the next workflows. Left out when
    there are no more.
    """
    older: bool
    """With `q`: whether there are more workflows, which were not read; the numbers are then lower bounds. Left out
    without `q`.
    """
    searched: int
    """With `q`: how many workflows were read for the text, at most 10,000. Left out without `q`."""
    unread: int
    """With `error`, `handler` or `q`: how many failed workflows are too large to read here, and may match. Left out
    when none is.
    """


class _WorkflowPageRequired(TypedDict):
    items: list[Workflow]
    next_cursor: str | None
    """The cursor of the next page; null when this is the last."""


class WorkflowPage(_WorkflowPageRequired, total=False):
    """A page of workflows."""

    incomplete: Incomplete
    """Data that is missing, when a part of the store does not answer. Left out when nothing is."""
    older: bool
    """With `q`: whether the search ended there, and `next_cursor` leads to workflows that were not read. Left out
    without `q`.
    """
    searched: int
    """With `q`: how many workflows were read for the text, at most 10,000. Those found by name, tag, id or key take no
    reading. Left out without `q`.
    """
    unread: int
    """With `error`, `handler` or `q`: how many failed workflows are too large to read here, and may match. Left out
    when none is.
    """


class WorkflowStatus(TypedDict):
    """Whether workflows can be served: their store, its reads and its writes."""

    clock_skew_ms: int | None
    """How far the clock of this machine is ahead of that of the Redis with the workflows, which they follow, in
    milliseconds; negative when it is behind. Rate limits follow this machine's. Null where there is no other clock, and
    while the store is not open.
    """
    enabled: bool
    """False where the server has no workflows and shows limits only (`TIDEGATE_STORE_URL=off`)."""
    open: bool
    """Whether the store is open. False: it cannot be opened, or no call has needed it so far."""
    partitions: int
    """How many partitions the store has; 0 while it is not open."""
    reads: Works
    ready: bool
    """Whether `/readyz` says ready."""
    reason: str | None
    """Why it cannot be opened; null when it can."""
    risks: list[str]
    """By what acknowledged work could be lost, and what to do about it, a sentence each: settings of Redis, looked at
    every minute.
    """
    servers: list[Server]
    """The servers that use the store and have reported lately; empty where only this one can."""
    troubles: list[PartitionTrouble]
    """Failures of the store, by partition."""
    writes: Works


class LimitInUse(Limit, total=False):
    """A limit, and how much of it is used."""

    holders: list[Holder] | None
    """Those that lose their places first: at most 10."""
    rule: str | None
    """Of a rate limit: its path in the configuration. Left out when the configuration has no such limit."""
    running: int | None
    """Of a limit of concurrency: how many jobs run under it."""
    use: WindowUse | None
    """Of a rate limit: what its window has used; left out when the configuration has no such limit."""


class LimitStatus(LimitStatusExplained):
    """The answer for a descriptor."""

    code: str
    entries: list[list[str]]
    """Pairs of a key and a value."""
    limit: Rate | None
    """The limit that applies; null when there is none, or it is unlimited."""
    remaining: int | None
    """Hits that the window would have left; null without a limit."""
    reset_ms: int | None
    """How long the window lasts, in whole seconds; null without a limit."""
